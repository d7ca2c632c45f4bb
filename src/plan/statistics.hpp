// The statistics of a comparison: paired ratios, distribution-free intervals, and when they decide. Reasons:
// docs/planner.md.
#pragma once

#include <span>
#include <vector>

namespace gnomon {

struct Quartiles {
  double low = 0, median = 0, high = 0;
};
Quartiles quartiles(std::vector<double> values);  // zeros when empty

// The median of `ratios` with the narrowest symmetric pair of order statistics that covers the true median with at
// least `wanted` probability, whatever the distribution. Too few ratios: [min, max] and the coverage that this has.
struct Interval {
  double median = 0, low = 0, high = 0;
  double coverage = 0;
};
Interval median_interval(std::span<const double> ratios, double wanted);

enum class Standing { open, faster, slower };

// A comparison is looked at after these numbers of pairs and no others: each look may err with 1 %, so that all five
// together err with at most 5 %. Order statistics say nothing at 99 % before 8 pairs, so the first two ask more.
inline constexpr int kLooks[] = {2, 4, 8, 16, 32};
inline constexpr int kMostPairs = 32;
inline constexpr double kLookCoverage = 0.99;
inline constexpr int kFewestPairs = 3;    // below it a comparison that time ends says nothing, unless all its ratios
inline constexpr double kClearRatio = 3;  // are this far to one side: more than a neighbour's burst usually makes

// ratios: challenger's time over the incumbent's. Always open between two looks.
// `apart_from`: of how many samples, all that the incumbent ever took, the range lies wholly to one side of every
// sample of the challenger; 0 when it does not. A neighbour's burst over two samples makes ratios that are far off and
// agree.
Standing look(std::span<const double> ratios, int apart_from);
// The only look of a comparison that time ends early: the 95 % interval, or [min, max] of at least kFewestPairs, or
// what is clear.
Standing last_look(std::span<const double> ratios);

}  // namespace gnomon
