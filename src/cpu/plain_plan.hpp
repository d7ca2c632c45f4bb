// The reference path as a plan: the baseline every other candidate is timed against.
#pragma once

#include <memory>

#include "core/problem.hpp"
#include "cpu/arena.hpp"
#include "cpu/choices.hpp"
#include "plan/backend.hpp"
#include "reference/plain_pass.hpp"

namespace gnomon::cpu {

class PlainPlan final : public Plan {
 public:
  PlainPlan(const Problem& problem, const Choices& choices, std::shared_ptr<const Weights> weights, Arena& arena)
      : weights_(std::move(weights)),
        pass_(*weights_, problem.batch, problem.seq, /*query_block=*/problem.seq, choices.threads),
        arena_(arena),
        claim_(arena, static_cast<std::size_t>(pass_.scratch_floats()) * sizeof(float)) {}

  void run(const Call& call) override {
    const Arena::Use use(arena_, claim_);
    pass_.run(call, reinterpret_cast<float*>(use.data()));
  }
  void poison_scratch() override { arena_.poison(); }
  std::int64_t scratch_bytes() const override { return static_cast<std::int64_t>(claim_.bytes()); }

 private:
  const std::shared_ptr<const Weights> weights_;
  reference::PlainPass pass_;
  Arena& arena_;
  const Arena::Claim claim_;
};

}  // namespace gnomon::cpu
