// The order of search: a descent over the backend's groups from a safe plan, groups re-opened when a later choice
// changed their ground.
#pragma once

#include <deque>
#include <set>

#include "plan/contest.hpp"

namespace gnomon {

class Search {
 public:
  Search(Backend& backend, Contest& contest, const Problem& problem, const PlannerOptions& options)
      : backend_(backend),
        contest_(contest),
        problem_(problem),
        options_(options),
        exhaustive_(options.effort == Effort::exhaustive) {}

  // Afterwards there is an incumbent, or fail() has said why not.
  void run();

  // For when the incumbent proved wrong: the next best that still passes takes its place. False when none is left.
  bool step_down();

  // Throws with the fate of every candidate. Caller error when the constraints leave none; environment error where
  // memory or a library failed; internal error when one wrote out of bounds, threw or was wrong where it should be
  // exact.
  [[noreturn]] void fail(std::string_view what) const;

  Contender& incumbent() { return incumbent_; }
  bool cut_short() const { return cut_short_; }  // the budget ended, or the caller cancelled, before the search did
  std::vector<std::string> notes;

 private:
  struct Agenda {
    std::set<std::string> visited, reopened;
    std::deque<std::string> pending;  // groups to be opened again
  };

  // One that the incumbent keeps from its place, and its time over the incumbent's, by paired ratios.
  struct RunnerUp {
    Candidate candidate;
    double ratio;
  };

  Candidate constrained(const Candidate& candidate) const { return candidate.with(options_.constraints.forced); }
  void start(const Candidate& plain, const Candidate& estimate, bool timed);
  bool first_of_any_group(const Candidate& plain, bool timed);
  void descend();
  std::vector<Candidate> fresh_candidates(const Group& group) const;
  bool next_group(Agenda& agenda, Group& group, std::size_t& left) const;
  void reopen(Agenda& agenda, const std::string& changed) const;
  bool settle(const Group& group, double until);  // true when the incumbent changed
  std::vector<Contender> enroll_heat(std::deque<Candidate>& pending, const std::string& group);
  void screen(std::vector<Contender>& heat, double until);
  bool meet(Contender& challenger, double until);
  Duel judged_duel(Contender& challenger, double until);
  void crown(Contender&& challenger, Outcome fate_of_the_old, const std::string& reason);
  void stay_behind(const CandidateReport& loser) { runners_up_.push_back({loser.candidate, loser.ratio}); }
  void measure_by(double ratio);
  void fall();  // step_down(), or fail() when none is left
  void put_off(const std::string& group, const std::vector<Candidate>& candidates);
  void put_off_the_rest(Agenda& agenda);

  Backend& backend_;
  Contest& contest_;
  const Problem& problem_;
  const PlannerOptions& options_;
  bool exhaustive_, cut_short_ = false;
  Contender incumbent_;
  std::vector<RunnerUp> runners_up_;  // former incumbents, and those that lost to the present one
};

}  // namespace gnomon
