#include "plan/search.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace gnomon {
namespace {

constexpr std::size_t kHeat = 8;  // challengers alive at once: each holds its own scratch and packed weights

bool is_out(const CandidateReport& report) {
  return report.outcome == Outcome::rejected || report.outcome == Outcome::refused;
}

}  // namespace

std::vector<Candidate> Search::fresh_candidates(const Group& group) const {
  const Candidate base = incumbent_.plan ? contest_.candidate(incumbent_) : constrained(backend_.plain(problem_));
  std::vector<Candidate> fresh;
  for (const std::vector<Choice>& changes : group.alternatives) {
    const Candidate candidate = constrained(base.with(changes));
    if (candidate == base && incumbent_.plan) continue;
    if (contest_.met(candidate) || std::ranges::find(fresh, candidate) != fresh.end()) continue;
    fresh.push_back(candidate);
  }
  return fresh;
}

void Search::run() {
  const bool timed = options_.effort != Effort::estimate;
  const Candidate plain = constrained(backend_.plain(problem_));
  const Candidate estimate = constrained(backend_.estimate(problem_, options_.constraints));
  start(plain, estimate, timed);
  if (timed) {
    contest_.report(incumbent_).outcome = Outcome::won;
    if (!contest_.met(estimate)) settle({"start", {estimate.choices()}, {}}, contest_.deadline());
    descend();
    return;
  }
  contest_.report(incumbent_).outcome = Outcome::estimated;
  if (!contest_.met(plain)) runners_up_.push_back({plain, 1});
  if (!(contest_.candidate(incumbent_) == estimate)) {
    notes.push_back(fmt::format("the estimate {} was out: {}", estimate.to_string(), contest_.met(estimate)->reason));
  }
}

// The safe plan to climb from: plain, then the estimate (the other way round when nothing is timed), then anything.
void Search::start(const Candidate& plain, const Candidate& estimate, bool timed) {
  for (const Candidate* first : {timed ? &plain : &estimate, timed ? &estimate : &plain}) {
    if (contest_.met(*first)) continue;
    if (contest_.enroll(*first, "start", timed, false, incumbent_) == Entry::ready) return;
    incumbent_.plan.reset();
  }
  if (!first_of_any_group(plain, timed)) fail("no candidate can run");
}

bool Search::first_of_any_group(const Candidate& plain, bool timed) {
  for (const Group& group : backend_.groups(problem_, plain)) {
    for (const Candidate& candidate : fresh_candidates(group)) {
      if (contest_.enroll(candidate, group.name, timed, false, incumbent_) == Entry::ready) return true;
      incumbent_.plan.reset();
    }
  }
  return false;
}

void Search::fail(std::string_view what) const {
  // One that fell to a bug is a bug, whatever was demanded. Where all are out because of what they are asked for, the
  // caller asked too much, unless nothing was asked: then it is the machine that is too small.
  ErrorKind blame = ErrorKind::caller;
  std::string fates;
  for (const CandidateReport& report : contest_.reports) {
    blame = std::max(blame, report.blame);
    fates += fmt::format("\n  {}: {}", report.candidate.to_string(), report.reason);
  }
  Constraints refusing = options_.constraints;
  refusing.timing = Timing::warm;
  const std::string demands = refusing.to_string();
  const bool judged = std::ranges::any_of(
      contest_.reports, [](const CandidateReport& report) { return report.outcome == Outcome::rejected; });
  if (demands.empty() && !judged) blame = std::max(blame, ErrorKind::environment);
  throw Error(blame,
              fmt::format("{} {}{}:{}", what, to_string(problem_), demands.empty() ? "" : " under " + demands, fates));
}

bool Search::next_group(Agenda& agenda, Group& group, std::size_t& left) const {
  const std::vector<Group> groups = backend_.groups(problem_, contest_.candidate(incumbent_));
  left = agenda.pending.size();
  const Group* next = nullptr;
  for (const Group& candidate : groups) {
    if (agenda.visited.contains(candidate.name)) continue;
    if (!next) next = &candidate;
    ++left;
  }
  while (!next && !agenda.pending.empty()) {
    const auto found = std::ranges::find(groups, agenda.pending.front(), &Group::name);
    agenda.pending.pop_front();
    if (found != groups.end()) next = &*found;
  }
  if (!next) return false;
  group = *next;
  agenda.visited.insert(group.name);
  return true;
}

void Search::reopen(Agenda& agenda, const std::string& changed) const {
  for (const Group& group : backend_.groups(problem_, contest_.candidate(incumbent_))) {
    if (group.name == changed || !agenda.visited.contains(group.name)) continue;
    const bool named = std::ranges::find(group.reopened_by, changed) != group.reopened_by.end();
    // Exhaustive: any change re-opens every group. It ends, since no candidate is tried twice.
    if (!exhaustive_ && (!named || !agenda.reopened.insert(group.name).second)) continue;
    if (std::ranges::find(agenda.pending, group.name) == agenda.pending.end()) agenda.pending.push_back(group.name);
  }
}

void Search::descend() {
  Agenda agenda;
  Group group;
  std::size_t left = 0;
  while (!contest_.over(incumbent_) && next_group(agenda, group, left)) {
    // An equal share of what is left, so that one long tie cannot starve the later groups.
    const double now = contest_.now();
    const double until = now + (contest_.deadline() - now) / static_cast<double>(std::max<std::size_t>(left, 1));
    if (settle(group, until)) reopen(agenda, group.name);
  }
  put_off_the_rest(agenda);
}

void Search::put_off_the_rest(Agenda& agenda) {
  Group group;
  std::size_t left = 0;
  while (next_group(agenda, group, left)) put_off(group.name, fresh_candidates(group));
}

void Search::put_off(const std::string& group, const std::vector<Candidate>& candidates) {
  cut_short_ |= !candidates.empty();
  for (const Candidate& candidate : candidates) {
    CandidateReport& report = contest_.reports[contest_.report_on(candidate, group)];
    const auto refusal = backend_.refuses(problem_, options_.constraints, candidate);
    if (refusal) report.outcome = Outcome::refused;
    if (refusal || report.reason.empty()) report.reason = refusal ? refusal->reason : contest_.why_over();
  }
}

std::vector<Contender> Search::enroll_heat(std::deque<Candidate>& pending, const std::string& group) {
  std::vector<Contender> heat;
  while (!pending.empty() && heat.size() < kHeat && !contest_.over(incumbent_)) {
    if (!contest_.shows(pending.front(), group)) {
      pending.pop_front();
      continue;
    }
    Contender contender;
    const Entry entry = contest_.enroll(pending.front(), group, true, !heat.empty(), contender);
    if (entry == Entry::no_memory && !heat.empty()) break;  // others may fill the memory: again in a heat of its own
    if (entry == Entry::ready) heat.push_back(std::move(contender));
    pending.pop_front();
  }
  return heat;
}

bool Search::settle(const Group& group, double until) {
  const std::vector<Candidate> fresh = fresh_candidates(group);
  std::deque<Candidate> pending(fresh.begin(), fresh.end());
  bool changed = false;
  while (!pending.empty() && !contest_.over(incumbent_)) {
    std::vector<Contender> heat = enroll_heat(pending, group.name);
    if (!exhaustive_) screen(heat, until);
    for (Contender& challenger : heat) {
      if (is_out(contest_.report(incumbent_))) fall();
      changed |= meet(challenger, until);
      challenger.plan.reset();
    }
  }
  put_off(group.name, {pending.begin(), pending.end()});
  return changed;
}

void Search::screen(std::vector<Contender>& heat, double until) {
  std::vector<std::size_t> entered;
  for (const Contender& challenger : heat) entered.push_back(challenger.report);
  contest_.screen(incumbent_, heat, until);
  for (const std::size_t report : entered) {
    if (contest_.reports[report].outcome == Outcome::halved) stay_behind(contest_.reports[report]);
  }
}

// Nobody leaves because of an incumbent that is fast and wrong: it is judged before its time counts against another.
Duel Search::judged_duel(Contender& challenger, double until) {
  for (;;) {  // it ends: every fall puts a candidate out
    const Duel result = contest_.duel(incumbent_, challenger, until);
    const bool stays = result == Duel::slower || result == Duel::tie || result == Duel::undecided;
    if (result != Duel::incumbent_out && (!stays || contest_.recheck(incumbent_))) return result;
    fall();
  }
}

bool Search::meet(Contender& challenger, double until) {
  const Duel result = judged_duel(challenger, until);
  CandidateReport& its = contest_.report(challenger);
  const Candidate& mine = contest_.candidate(incumbent_);
  switch (result) {
    case Duel::challenger_out:
    case Duel::incumbent_out:
      return false;
    case Duel::unfinished:
      cut_short_ = true;
      its.outcome = Outcome::untimed;
      return false;
    case Duel::slower:
      its.outcome = Outcome::lost;
      stay_behind(its);
      return false;
    case Duel::tie:
    case Duel::undecided:
      its.outcome = Outcome::tied;
      // Time ended this one while the interval was wide: a simpler one that looks slower is not taken on trust.
      if (result == Duel::undecided && its.ratio > 1) {
        stay_behind(its);
        return false;
      }
      if (backend_.complexity(its.candidate) >= backend_.complexity(mine)) {
        its.reason += "; the incumbent is no more complex and stays";
        stay_behind(its);
        return false;
      }
      if (!contest_.recheck(challenger)) return false;
      crown(std::move(challenger), Outcome::tied, "tied with a simpler one");
      return true;
    case Duel::faster:
      if (!contest_.recheck(challenger)) return false;
      crown(std::move(challenger), Outcome::lost, "");
      return true;
  }
  return false;
}

void Search::crown(Contender&& challenger, Outcome fate_of_the_old, const std::string& reason) {
  CandidateReport& old = contest_.report(incumbent_);
  CandidateReport& its = contest_.report(challenger);
  old.outcome = fate_of_the_old;
  old.reason = fmt::format(
      "{} ({})", reason.empty() ? fmt::format("{:.3g} times slower than the next", 1 / its.ratio) : reason, its.reason);
  measure_by(its.ratio);
  runners_up_.push_back({old.candidate, 1 / its.ratio});
  its.outcome = Outcome::won;
  incumbent_ = std::move(challenger);
}

// The incumbent has become another, whose time over the former's is `ratio`.
void Search::measure_by(double ratio) {
  for (RunnerUp& other : runners_up_) other.ratio /= ratio;
}

bool Search::step_down() {
  while (!runners_up_.empty()) {
    const CandidateReport fallen = contest_.report(incumbent_);
    const auto best = std::ranges::min_element(runners_up_, {}, &RunnerUp::ratio);
    const RunnerUp next = *best;
    runners_up_.erase(best);
    measure_by(next.ratio);
    incumbent_.plan.reset();
    notes.push_back(fmt::format("{} fell: {}", fallen.candidate.to_string(), fallen.reason));
    const bool timed = options_.effort != Effort::estimate;
    if (contest_.enroll(next.candidate, "start", timed, false, incumbent_) == Entry::ready) {
      contest_.report(incumbent_).outcome = timed ? Outcome::won : Outcome::estimated;
      return true;
    }
  }
  return false;
}

void Search::fall() {
  if (!step_down()) fail("no candidate is left for");
}

}  // namespace gnomon
