// Threads of execution that take turns in one thread of the system: each has a stack, and runs until it hands over.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gnomon::emulator {

// Memory for a stack, with a page below it that nobody may touch: an overflow is a fault, not a wrong answer.
class Stack {
 public:
  explicit Stack(std::size_t bytes);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  char* bottom() const { return bottom_; }
  std::size_t bytes() const { return bytes_; }

 private:
  char* bottom_;
  std::size_t bytes_;
};

class Fiber {
 public:
  Fiber() = default;  // the stack that the caller runs on
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Calls entry(argument) when it is first switched to. `entry` never returns: its last act is a switch.
  void start(const Stack& stack, void (*entry)(void*), void* argument);
  // Stops `from`, which is running, and goes on with `to`. `last`: nobody will come back to `from`.
  static void change(Fiber& from, Fiber& to, bool last = false);

 private:
  static void begin();
  const void* bottom_ = nullptr;  // of the stack, for the address sanitizer
  std::size_t bytes_ = 0;
  void* fake_stack_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace gnomon::emulator
