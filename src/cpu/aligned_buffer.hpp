// Memory on cache-line boundaries; large blocks on huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <memory>

namespace gnomon::cpu {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes);  // throws std::bad_alloc; contents are not initialised
  char* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* p) const;
  };
  std::unique_ptr<char, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace gnomon::cpu
