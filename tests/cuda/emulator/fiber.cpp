#include "cuda/emulator/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define GNOMON_ADDRESS_SANITIZER 1
#else
#define GNOMON_ADDRESS_SANITIZER 0
#endif

#if defined(__x86_64__)
// Saves what a called function must keep, and goes on where the other fiber did the same. swapcontext would ask the
// kernel for the signal mask, twenty times the cost.
extern "C" void gnomon_fiber_switch(void** from, void* to);
asm(R"(
.text
.type gnomon_fiber_switch, @function
gnomon_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gnomon_fiber_switch, . - gnomon_fiber_switch
)");
#endif

namespace gnomon::emulator {
namespace {

// Who is switched to, and who switched: told by each switch to the code that runs next. Threads of the system take
// turns too (engine.cpp), so that one place serves them all.
Fiber* arriving = nullptr;
[[maybe_unused]] Fiber* leaving = nullptr;

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Stack::Stack(std::size_t bytes) : bytes_(bytes) {
  void* memory =
      mmap(nullptr, bytes + page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page(), PROT_NONE);
  bottom_ = static_cast<char*>(memory) + page();
#if GNOMON_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(bottom_, bytes_);  // of a stack that lay here before
#endif
}

Stack::~Stack() { munmap(bottom_ - page(), bytes_ + page()); }

void Fiber::begin() {
  Fiber* const self = arriving;
#if GNOMON_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &leaving->bottom_, &leaving->bytes_);
#endif
  self->entry_(self->argument_);
  __builtin_trap();  // `entry` does not return
}

void Fiber::start(const Stack& stack, void (*entry)(void*), void* argument) {
  bottom_ = stack.bottom();
  bytes_ = stack.bytes();
  fake_stack_ = nullptr;
  entry_ = entry;
  argument_ = argument;
#if defined(__x86_64__)
  // Six saved registers, the address that the switch returns to, and where a return address of begin() would lie.
  void** top = reinterpret_cast<void**>(stack.bottom() + stack.bytes());
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(&Fiber::begin);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  stack_pointer_ = top - 8;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack.bottom();
  context_.uc_stack.ss_size = stack.bytes();
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::begin, 0);
#endif
}

void Fiber::change(Fiber& from, Fiber& to, [[maybe_unused]] bool last) {
  arriving = &to;
  leaving = &from;
#if GNOMON_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack_, to.bottom_, to.bytes_);
#endif
#if defined(__x86_64__)
  gnomon_fiber_switch(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if GNOMON_ADDRESS_SANITIZER
  // Whoever came here from a thread's own stack learns where that lies.
  __sanitizer_finish_switch_fiber(from.fake_stack_, &leaving->bottom_, &leaving->bytes_);
#endif
}

}  // namespace gnomon::emulator
