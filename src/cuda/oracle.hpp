// The oracle on the device: the plain pass, a few sequences and query rows at a time, so that it needs little memory.
#pragma once

#include "core/problem.hpp"
#include "cuda/machine.hpp"

namespace gnomon::cuda {

// The reference's answer to `call`, complete on return. Environment error or std::bad_alloc when memory fails.
void oracle(Machine& machine, const Call& call);

}  // namespace gnomon::cuda
