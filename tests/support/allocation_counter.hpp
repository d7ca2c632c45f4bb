// Counts heap allocations of the whole process while one exists, told apart by who asks: our code or a library's.
// An executable that uses it has its operator new and malloc replaced. Sanitizers bring their
// own, which must stay: nothing is counted then.
#pragma once

#include <cstdint>

namespace gnomon::test {

class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  std::int64_t ours() const;       // the executable, libstdc++ and Highway
  std::int64_t libraries() const;  // oneDNN, libgomp and the C library itself
};

}  // namespace gnomon::test
