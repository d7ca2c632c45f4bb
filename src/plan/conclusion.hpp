// The end of a planning: the winner is judged a last time and, when a part stood for the whole call, bound to the
// whole.
#pragma once

#include "plan/bench.hpp"
#include "plan/search.hpp"

namespace gnomon {

class Conclusion {
 public:
  // `reference_seconds`: what opening the bench took, that is the reference path on its problem.
  Conclusion(Backend& backend, Clock& clock, const Problem& problem, const Call& call, const Bench& bench,
             double reference_seconds, double budget_end, const PlannerOptions& options);

  bool part() const { return !(bench_.problem == problem_); }
  // The search stops here, so that the judgement on the whole call has its time.
  double search_deadline() const { return budget_end_ - (judge_whole_ ? whole_seconds_ : 0); }

  // The winner's plan for the whole problem. A winner that fails now leaves its place to the one it displaced.
  std::unique_ptr<Plan> conclude(Contest& contest, Search& search);

  const InputRange& range() const { return range_; }
  std::int64_t runs() const { return runs_; }  // beyond the contest's
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::unique_ptr<Plan> bind_whole(CandidateReport& its);
  void judge_on_whole(Plan& plan, CandidateReport& its);

  Backend& backend_;
  Clock& clock_;
  const Problem& problem_;
  const Call& call_;
  const Bench& bench_;
  const PlannerOptions& options_;
  double budget_end_;
  InputRange range_;
  double whole_seconds_ = 0;  // what judging on the whole call will take
  bool judge_whole_ = false;
  std::int64_t runs_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace gnomon
