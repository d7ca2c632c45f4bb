// The steps that touch the caller's tensors: rows in, rows out.
#pragma once

#include "cuda/machine.hpp"
#include "cuda/norm.hpp"
#include "cuda/pass.hpp"
#include "cuda/pass_guard.hpp"
#include "cuda/rows.hpp"

namespace gnomon::cuda {

// The caller's rows to fp32 rows, narrow rows, or both. With `range`: rows outside of it raise a flag.
void add_load(StepList& steps, Machine& machine, const Call& part, const BorderLayout& layout, float* wide,
              std::optional<DType> narrow_type, void* narrow, const float* range, std::uint32_t* flag);

// A fallback's first step: whether its body answers, and for which tensors, which goes to `told`.
void add_decision(StepList& steps, Machine& machine, const PassGuard& guard, kernels::CallTensors* told);

// Makes the output of `norm`'s launch the caller's; elements that are not finite raise the flag, if there is one.
void add_to_output(StepList& steps, Launch<kernels::NormRows> norm, const Call& part, std::uint32_t* flag);

// fp32 rows, as they are, to the caller's tensor.
void add_store(StepList& steps, Machine& machine, const Call& part, const BorderLayout& layout, const float* rows);

}  // namespace gnomon::cuda
