#include "plan/contest.hpp"

#include <algorithm>
#include <cmath>
#include <new>

#include "core/error.hpp"
#include "plan/bench.hpp"

namespace gnomon {
Contest::Contest(Backend& backend, Clock& clock, Workbench& bench, const Problem& whole, const Problem& timed,
                 const PlannerOptions& options, double started, double deadline)
    : backend_(backend),
      clock_(clock),
      meter_(bench, clock, timed.inplace, options.constraints.timing),
      whole_(whole),
      timed_(timed),
      options_(options),
      started_(started),
      deadline_(deadline) {}

bool Contest::over(const Contender& incumbent) const {
  // The warm-up doubles its runs up to those of a sample, the last of which may be taken twice.
  const double preparing = 5.0 * incumbent.runs * meter_.untimed();
  return !time_for((3 + incumbent.runs) * incumbent.seconds + preparing, deadline_) || clock_.now() >= deadline_;
}

std::string Contest::why_over() const {
  if (options_.cancelled && options_.cancelled()) return "cancelled by the caller";
  return fmt::format("the budget of {:g} s ended first", options_.budget_seconds);
}

bool Contest::time_for(double seconds, double until) const {
  return clock_.now() + seconds <= std::min(until, deadline_) && !(options_.cancelled && options_.cancelled());
}

void Contest::tell(const std::string& now) const {
  if (!options_.progress) return;
  Progress progress{clock_.now() - started_, options_.budget_seconds, 0, now};
  for (const CandidateReport& report : reports) progress.candidates_done += report.outcome != Outcome::untimed;
  options_.progress(progress);
}

const CandidateReport* Contest::met(const Candidate& candidate) const {
  const auto found = std::ranges::find(reports, candidate, &CandidateReport::candidate);
  return found == reports.end() || found->outcome == Outcome::untimed ? nullptr : &*found;
}

std::size_t Contest::report_on(const Candidate& candidate, const std::string& group) {
  const auto found = std::ranges::find(reports, candidate, &CandidateReport::candidate);
  if (found != reports.end()) return static_cast<std::size_t>(found - reports.begin());
  reports.push_back({.candidate = candidate, .group = group, .approximations = backend_.approximations(candidate)});
  samples_.emplace_back();
  return reports.size() - 1;
}

// A candidate that fails takes only itself out.
Contest::Fate Contest::guarded(std::size_t index, const char* doing, const std::function<void()>& action) {
  ErrorKind blame = ErrorKind::internal;
  std::string reason;
  try {
    action();
    return Fate::fine;
  } catch (const std::bad_alloc&) {
    blame = ErrorKind::environment;
    reason = fmt::format("ran out of memory {}", doing);
  } catch (const Error& error) {
    blame = error.kind();
    reason = fmt::format("failed {}: {}", doing, error.what());
  } catch (const std::exception& error) {
    reason = fmt::format("threw {}: {}", doing, error.what());
  } catch (...) {
    reason = fmt::format("threw {}: no std::exception", doing);
  }
  const bool memory = blame == ErrorKind::environment;  // or a library, which says so in its own words
  reports[index].outcome = memory ? Outcome::refused : Outcome::rejected;
  reports[index].reason = reason;
  reports[index].blame = blame;
  return memory ? Fate::no_memory : Fate::failed;
}

bool Contest::judge(Contender& contender, const char* when) {
  Verdict verdict;
  const Fate fate = guarded(contender.report, "while being checked", [&] { verdict = meter_.check(*contender.plan); });
  if (fate != Fate::fine) return false;
  CandidateReport& its = report(contender);
  its.worst = std::max(its.worst, verdict.worst);
  const Contract contract = judging_contract(backend_, its.candidate, whole_, timed_.elements());
  if (!verdict.passes(contract)) {
    reject(its, when, verdict, contract);
    return false;
  }
  contender.checked = true;
  return true;
}

bool Contest::shows(const Candidate& candidate, const std::string& group) {
  if (timed_ == whole_) return true;
  const auto refusal = backend_.unlike_whole(timed_, whole_, candidate);
  if (!refusal) return true;
  CandidateReport& its = reports[report_on(candidate, group)];
  its.outcome = Outcome::refused;
  its.reason = refusal->reason;
  return false;
}

Entry Contest::enroll(const Candidate& candidate, const std::string& group, bool timed, bool retry,
                      Contender& contender) {
  const bool known = std::ranges::find(reports, candidate, &CandidateReport::candidate) != reports.end();
  contender = Contender{.report = report_on(candidate, group)};
  CandidateReport& its = report(contender);
  its.outcome = Outcome::untimed;
  its.reason.clear();
  if (const auto refusal = backend_.refuses(whole_, options_.constraints, candidate)) {
    its.outcome = Outcome::refused;
    its.reason = refusal->reason;
    its.blame = ErrorKind::caller;
    return Entry::out;
  }
  tell("preparing " + candidate.to_string());
  const Fate fate =
      guarded(contender.report, "while being prepared", [&] { contender.plan = backend_.prepare(timed_, candidate); });
  if (fate == Fate::no_memory && retry) {
    if (known) {
      report(contender).outcome = Outcome::untimed;
    } else {
      reports.pop_back();
      samples_.pop_back();
    }
    return Entry::no_memory;
  }
  if (fate != Fate::fine) return fate == Fate::no_memory ? Entry::no_memory : Entry::out;
  tell("checking " + candidate.to_string());
  if (!judge(contender, "before it was timed")) return Entry::out;
  if (!timed) return Entry::ready;
  const Fate warm = guarded(contender.report, "while warming up", [&] {
    contender.checked = false;
    contender.runs = meter_.trustworthy_runs(*contender.plan, contender.seconds);
  });
  return warm == Fate::fine ? Entry::ready : Entry::out;
}

bool Contest::recheck(Contender& contender) { return contender.checked || judge(contender, "after it was timed"); }

bool Contest::sample(Contender& contender, int runs, double& seconds) {
  contender.checked = false;
  const Fate fate =
      guarded(contender.report, "while being timed", [&] { seconds = meter_.sample(*contender.plan, runs); });
  if (fate != Fate::fine) return false;
  contender.seconds = seconds;
  samples_[contender.report].push_back(seconds);
  return true;
}

void Contest::note_interval(CandidateReport& its, std::span<const double> ratios) const {
  const Interval interval =
      median_interval(ratios, static_cast<int>(ratios.size()) > kFewestPairs ? 0.95 : kLookCoverage);
  its.ratio = interval.median;
  its.ratio_low = interval.low;
  its.ratio_high = interval.high;
  its.reason = fmt::format("{} pairs, the interval covers {:.3g} %", ratios.size(), 100 * interval.coverage);
}

int Contest::apart_from(const Contender& incumbent, double fastest, double slowest) const {
  const std::vector<double>& its = samples_[incumbent.report];
  const auto [low, high] = std::ranges::minmax(its);
  return fastest > high || slowest < low ? static_cast<int>(its.size()) : 0;
}

Duel Contest::duel(Contender& incumbent, Contender& challenger, double until) {
  tell(fmt::format("timing {}", candidate(challenger).to_string()));
  const int runs = std::max(incumbent.runs, challenger.runs);
  std::vector<double> ratios;
  double fastest = INFINITY, slowest = 0;  // of the challenger's samples here
  Standing standing = Standing::open;
  while (standing == Standing::open && static_cast<int>(ratios.size()) < kMostPairs) {
    const double pair_seconds = runs * (incumbent.seconds + challenger.seconds + 2 * meter_.untimed());
    if (!time_for(pair_seconds, static_cast<int>(ratios.size()) < kFewestPairs ? deadline_ : until)) break;
    double mine = 0, its = 0;
    // The order alternates, so that a drift of the machine's speed pushes successive ratios to opposite sides.
    const bool challenger_first = ratios.size() % 2 == 1;
    if (challenger_first && !sample(challenger, runs, its)) return Duel::challenger_out;
    if (!sample(incumbent, runs, mine)) return Duel::incumbent_out;
    if (!challenger_first && !sample(challenger, runs, its)) return Duel::challenger_out;
    ratios.push_back(its / mine);
    fastest = std::min(fastest, its);
    slowest = std::max(slowest, its);
    standing = look(ratios, apart_from(incumbent, fastest, slowest));
  }
  CandidateReport& its = report(challenger);
  const auto pairs = static_cast<int>(ratios.size());
  if (pairs > 0) note_interval(its, ratios);
  if (standing != Standing::open) {
    if (pairs < 8) its.reason = fmt::format("{} pairs, apart from all the incumbent took", pairs);
  } else if (pairs == kMostPairs) {
    return Duel::tie;
  } else {
    standing = last_look(ratios);
    if (pairs < kFewestPairs && standing == Standing::open) {
      its.reason = fmt::format("{}; after {} pairs (one pass takes {:.3g} s)", why_over(), pairs, challenger.seconds);
      return Duel::unfinished;
    }
    its.reason += ", ended by its share of the budget";
    if (standing == Standing::open) return Duel::undecided;
  }
  return standing == Standing::faster ? Duel::faster : Duel::slower;
}

// One sample of everybody, in order or reversed; false when time or the incumbent failed. Failed challengers lose their
// plan.
bool Contest::round(Contender& incumbent, std::vector<Contender>& challengers, std::vector<std::vector<double>>& ratios,
                    bool reversed) {
  int runs = incumbent.runs;
  for (const Contender& challenger : challengers) runs = std::max(runs, challenger.runs);
  std::vector<double> seconds(challengers.size());
  double mine = 0;
  if (!reversed && !sample(incumbent, runs, mine)) return false;
  for (std::size_t i = 0; i < challengers.size(); ++i) {
    const std::size_t at = reversed ? challengers.size() - 1 - i : i;
    if (!challengers[at].plan) continue;
    if (!time_for(runs * (challengers[at].seconds + meter_.untimed()), deadline_)) return false;
    if (!sample(challengers[at], runs, seconds[at])) challengers[at].plan.reset();
  }
  if (reversed && !sample(incumbent, runs, mine)) return false;
  for (std::size_t i = 0; i < challengers.size(); ++i) {
    if (challengers[i].plan) ratios[i].push_back(seconds[i] / mine);
  }
  return true;
}

void Contest::halve(std::vector<Contender>& challengers, std::vector<std::vector<double>>& ratios) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < challengers.size(); ++i) {
    if (challengers[i].plan) order.push_back(i);
  }
  const auto median = [&](std::size_t i) { return quartiles(ratios[i]).median; };
  std::ranges::stable_sort(order, {}, median);
  const std::size_t places = (order.size() + 1) / 2;
  std::vector<Contender> stay;
  std::vector<std::vector<double>> their_ratios;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const std::size_t i = order[place];
    CandidateReport& its = report(challengers[i]);
    note_interval(its, ratios[i]);
    if (stay.size() == places) {
      its.outcome = Outcome::halved;
      its.reason = fmt::format("place {} of {} after {} rounds", place + 1, order.size(), ratios[i].size());
      continue;
    }
    // Nobody leaves because of one that is fast and wrong.
    if (!recheck(challengers[i])) continue;
    stay.push_back(std::move(challengers[i]));
    their_ratios.push_back(std::move(ratios[i]));
  }
  challengers = std::move(stay);
  ratios = std::move(their_ratios);
}

void Contest::screen(Contender& incumbent, std::vector<Contender>& challengers, double until) {
  std::vector<std::vector<double>> ratios(challengers.size());
  while (challengers.size() > 2 && time_for(0, until)) {
    tell(fmt::format("screening {} candidates", challengers.size()));
    if (!round(incumbent, challengers, ratios, false) || !round(incumbent, challengers, ratios, true)) break;
    halve(challengers, ratios);
  }
  std::erase_if(challengers, [](const Contender& challenger) { return !challenger.plan; });
}

void Contest::summarize() {
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const Quartiles spread = quartiles(samples_[i]);
    reports[i].samples = static_cast<int>(samples_[i].size());
    reports[i].seconds = spread.median;
    reports[i].seconds_low = spread.low;
    reports[i].seconds_high = spread.high;
  }
}

}  // namespace gnomon
