// The bench on the device: the reference answer, a scratch output between guard zones, the contract judged in place.
#pragma once

#include <memory>
#include <vector>

#include "core/problem.hpp"
#include "cuda/machine.hpp"
#include "plan/backend.hpp"

namespace gnomon::cuda {

class CudaWorkbench final : public Workbench {
 public:
  CudaWorkbench(std::shared_ptr<Machine> machine, const Problem& problem, const Call& call);
  ~CudaWorkbench() override;

  Verdict check(Plan& plan) override;
  void before_timed_run() override;
  void evict_caches() override;
  void run(Plan& plan) override { run_repeatedly(plan, 1); }
  void run_repeatedly(Plan& plan, int times) override;
  InputRange input_range() const override { return range_; }

 private:
  CUstream stream() const { return static_cast<CUstream>(call_.stream); }
  void synchronize() const;
  void lay_out_scratch();
  InputRange measure_range(const Call& call);
  void restore_input();
  bool intact();
  bool gaps_intact();

  const std::shared_ptr<Machine> machine_;
  const Problem problem_;
  const ConstTensorView input_;
  ConstTensorView expected_;
  Call call_;  // what plans get: scratch output, and scratch input when in place
  DeviceBuffer reference_, scratch_, judgement_, evictor_;
  std::size_t scratch_bytes_ = 0;
  std::ptrdiff_t first_element_ = 0;  // of the output in the scratch, in bytes
  InputRange range_;
};

// Dense copies of a call's tensors on the device, for a planning that outlives its caller. Complete on return.
KeptCall keep_call(const std::shared_ptr<Machine>& machine, const Problem& problem, const Call& call);

}  // namespace gnomon::cuda
