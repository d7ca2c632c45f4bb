// A bench for every backend whose plans work on host memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "plan/backend.hpp"

namespace gnomon {

// Memory: the reference answer in fp32, and one scratch tensor in the output's dtype and layout.
class HostWorkbench : public Workbench {
 public:
  // `reference` is called once, with `call` whose output is a contiguous fp32 tensor and never the input.
  HostWorkbench(const Problem& problem, const Call& call, const std::function<void(const Call&)>& reference);

  Verdict check(Plan& plan) override;
  void before_timed_run() override;
  void run(Plan& plan) override;
  InputRange input_range() const override { return {0, input_max_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  static Memory allocate(std::size_t bytes);

  void lay_out_scratch(const Call& call);
  void poison_elements();

  Problem problem_;
  Memory reference_, scratch_;
  ConstTensorView input_, expected_;
  Call call_;  // what plans get: scratch output, and scratch input when in place
  std::size_t scratch_bytes_ = 0;
  double input_max_ = 0;
};

}  // namespace gnomon
