// oneDNN is built with OpenMP: a primitive takes the calling thread's count when it is made and when it runs.
#pragma once

#include <omp.h>

namespace gnomon::cpu {

// The calling thread's OpenMP setting is 1 thread for this object's life.
class OneOmpThread {
 public:
  OneOmpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOmpThread() { omp_set_num_threads(before_); }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  const int before_;
};

}  // namespace gnomon::cpu
