#include "cpu/stack_plan.hpp"

#include <algorithm>

#include "cpu/rounding.hpp"
#include "cpu/stack_pass.hpp"
#include "cpu/team.hpp"
#include "cpu/thread_pool.hpp"
#include "cpu/vec_kernels.hpp"

namespace gnomon::cpu {
std::int64_t StackLayout::rows_of_block(std::int64_t slice_rows) const {
  // A team shares a slice's rows; an owner alone takes them all. `block_rows` caps both.
  const std::int64_t sharing = owners > 1 ? 1 : workers;
  return std::min(block_rows, ceil_div(slice_rows, sharing));
}

StackLayout make_stack_layout(const Problem& problem, const Choices& choices) {
  const StackConfig& c = problem.config;
  StackLayout l{};
  l.slice_sequences = choices.slices == 0 ? problem.batch : std::min(choices.slices, problem.batch);
  l.slices = ceil_div(problem.batch, l.slice_sequences);
  const bool solo = choices.partition == Partition::sequence;
  l.workers = static_cast<int>(solo ? std::min<std::int64_t>(choices.threads, l.slices) : choices.threads);
  l.owners = solo ? l.workers : 1;
  const std::int64_t slice_rows = l.slice_sequences * problem.seq;
  l.block_rows = choices.chunk == 0 ? slice_rows : std::min(choices.chunk, slice_rows);
  l.block_rows = l.rows_of_block(slice_rows);

  std::int64_t used = 0;
  const auto take = [&used](std::int64_t floats) { return std::exchange(used, used + whole_lines(floats)); };
  const std::int64_t pairs = l.slice_sequences * c.n_heads;
  l.x = take(slice_rows * c.d_model);
  l.qkv[0] = take(slice_rows * 3 * c.d_model);
  // By rows, a worker may already project the next layer while another still reads this one's K and V.
  l.qkv[1] = choices.partition == Partition::row ? take(slice_rows * 3 * c.d_model) : l.qkv[0];
  l.keys = take(problem.mask && choices.mask_elision ? slice_rows : 0);
  l.key_counts = take(problem.mask && choices.mask_elision ? l.slice_sequences : 0);
  l.scores = take(choices.fused_attention ? 0 : pairs * problem.seq * problem.seq);
  l.weights = take(choices.fused_attention ? 0 : pairs * problem.seq * problem.seq);
  l.owner_floats = used;

  used = 0;
  const bool needs_norm = c.norm == NormPlacement::pre || !choices.fused_norm;
  l.hidden = take(l.block_rows * c.d_ff);
  l.norm = take(needs_norm ? l.block_rows * c.d_model : 0);
  l.narrow = take(choices.precision == Precision::fp32 ? 0 : l.block_rows * ceil_div(std::max(c.d_model, c.d_ff), 2));
  l.attention = take(choices.fused_attention ? vec_kernels().head_attention_scratch(problem.seq, c.head_dim()) : 0);
  l.worker_floats = used;
  l.total_floats = l.owners * l.owner_floats + l.workers * l.worker_floats;
  return l;
}

StackPlan::StackPlan(const Problem& problem, const Choices& choices, std::shared_ptr<const Weights> weights,
                     WeightPacks& packs, Arena& arena)
    : problem_(problem),
      choices_(choices),
      weights_(std::move(weights)),
      layout_(make_stack_layout(problem, choices)),
      arena_(arena),
      claim_(arena, static_cast<std::size_t>(layout_.total_floats) * sizeof(float)),
      fp32_(bind(Precision::fp32, packs)) {
  const StackConfig& c = problem.config;
  if (choices.precision != Precision::fp32) {
    reduced_ = bind(choices.precision, packs);
    flags_ = std::make_unique<SliceFlags[]>(static_cast<std::size_t>(layout_.slices));
  }
  if (!choices.fused_attention) {
    plain_attention_.emplace_back(problem.seq, problem.seq, c.head_dim(), 3 * c.d_model, 3 * c.d_model, c.causal,
                                  layout_.workers);
  }
}

std::vector<BlockProducts> StackPlan::bind(Precision precision, WeightPacks& packs) const {
  std::vector<BlockProducts> result;
  const auto add = [&](std::int64_t rows) {
    const auto same = [rows](const BlockProducts& b) { return b.rows == rows; };
    if (rows == 0 || std::any_of(result.begin(), result.end(), same)) return;
    BlockProducts block{rows, {}};
    for (const LayerWeights& layer : weights_->layers())
      block.layers.push_back(bind_layer(layer, precision, rows, packs));
    result.push_back(std::move(block));
  };
  // Whole slices and the last, smaller one; whole blocks of each and their remainders.
  const std::int64_t last = problem_.batch - (layout_.slices - 1) * layout_.slice_sequences;
  for (const std::int64_t sequences : {layout_.slice_sequences, last}) {
    const std::int64_t rows = sequences * problem_.seq;
    const std::int64_t block = layout_.rows_of_block(rows);
    add(block);
    add(rows % block);
  }
  return result;
}

LayerProducts StackPlan::bind_layer(const LayerWeights& w, Precision precision, std::int64_t rows,
                                    WeightPacks& packs) const {
  const StackConfig& c = problem_.config;
  const std::int64_t d = c.d_model, f = c.d_ff;
  const int workers = layout_.workers;
  const bool all_bf16 = precision == Precision::bf16;
  const bool qk_bf16 = precision != Precision::fp32;
  LayerProducts p;
  const auto project = [&](std::vector<const LinearWeights*> parts, std::int64_t column, bool bf16) {
    p.qkv.push_back({Product(packs, parts, {.rows = rows, .ldx = d, .ldy = 3 * d, .bf16 = bf16}, workers), column});
  };
  if (!choices_.fused_qkv) {
    project({&w.q_proj}, 0, qk_bf16);
    project({&w.k_proj}, d, qk_bf16);
    project({&w.v_proj}, 2 * d, all_bf16);
  } else if (qk_bf16 == all_bf16) {
    project({&w.q_proj, &w.k_proj, &w.v_proj}, 0, all_bf16);
  } else {
    project({&w.q_proj, &w.k_proj}, 0, qk_bf16);
    project({&w.v_proj}, 2 * d, all_bf16);
  }
  // A fused residual is added by the product itself, into the rows that hold it; else the product writes a temporary.
  const bool accumulate = choices_.fused_norm;
  p.out.emplace_back(
      packs, std::vector{&w.out_proj},
      ProductSpec{.rows = rows, .ldx = all_bf16 ? d : 3 * d, .ldy = d, .bf16 = all_bf16, .accumulate = accumulate},
      workers);
  p.fc1.emplace_back(packs, std::vector{&w.fc1},
                     ProductSpec{.rows = rows,
                                 .ldx = d,
                                 .ldy = f,
                                 .bf16 = all_bf16,
                                 .activate = choices_.gemm_gelu,
                                 .activation = c.activation},
                     workers);
  p.fc2.emplace_back(packs, std::vector{&w.fc2},
                     ProductSpec{.rows = rows, .ldx = f, .ldy = d, .bf16 = all_bf16, .accumulate = accumulate},
                     workers);
  return p;
}

std::int64_t StackPlan::packed_bytes() const {
  std::int64_t sum = 0;
  for (const auto* set : {&fp32_, &reduced_}) {
    if (set->empty()) continue;
    for (const LayerProducts& layer : set->front().layers) {
      for (const auto& projection : layer.qkv) sum += projection.product.packed_bytes();
      for (const auto* one : {&layer.out, &layer.fc1, &layer.fc2}) sum += one->front().packed_bytes();
    }
  }
  return sum;
}

void StackPlan::run(const Call& call) { execute(call, /*kernels=*/true); }

bool StackPlan::run_without_kernels(const Call& call) {
  execute(call, /*kernels=*/false);
  return true;
}

void StackPlan::execute(const Call& call, bool kernels) {
  const Arena::Use use(arena_, claim_);
  float* const base = reinterpret_cast<float*>(use.data());
  ThreadPool& pool = ThreadPool::shared();
  for (std::int64_t s = 0; flags_ && s < layout_.slices; ++s) {
    flags_[s].outside.store(false, std::memory_order_relaxed);
    flags_[s].not_finite.store(false, std::memory_order_relaxed);
  }
  const auto pass = [&](const auto& team, std::int64_t slice, int owner) {
    StackPass(*this, call, base, slice, owner, kernels).run(team);
  };
  if (choices_.partition == Partition::sequence) {
    std::atomic<std::int64_t> next{0};
    pool.run(layout_.workers, [&](int worker) {
      for (std::int64_t slice = next++; slice < layout_.slices; slice = next++) pass(SoloTeam{worker}, slice, worker);
    });
  } else if (choices_.graph) {
    SpinBarrier barrier(layout_.workers);
    pool.run(layout_.workers, [&](int worker) {
      const SpmdTeam team{barrier, worker, layout_.workers};
      try {
        for (std::int64_t slice = 0; slice < layout_.slices; ++slice) pass(team, slice, 0);
      } catch (...) {
        barrier.abort();
        throw;
      }
    });
  } else {
    const ForkTeam team{pool, layout_.workers};
    for (std::int64_t slice = 0; slice < layout_.slices; ++slice) pass(team, slice, 0);
  }
}

}  // namespace gnomon::cpu
