#include "reference/plain_pass.hpp"

#include <algorithm>
#include <utility>

#include "cpu/aligned_buffer.hpp"
#include "cpu/rounding.hpp"
#include "cpu/row_io.hpp"
#include "cpu/thread_pool.hpp"
#include "cpu/vec_kernels.hpp"

namespace gnomon::reference {
namespace {

// A product for each number of rows that a worker's share can have, without the bias: that is there before.
std::vector<cpu::Product> products(const LinearWeights& weights, std::int64_t rows, std::int64_t rows_per_block,
                                   int workers) {
  LinearWeights bare = weights;
  bare.bias = {};
  std::vector<cpu::Product> result;
  for (const std::int64_t m : {std::min(rows, rows_per_block), rows % rows_per_block}) {
    if (m == 0 || (!result.empty() && result.front().spec().rows == m)) continue;
    const cpu::ProductSpec spec{.rows = m, .ldx = weights.in, .ldy = weights.out, .accumulate = !weights.bias.empty()};
    result.emplace_back(bare, spec, workers);
  }
  return result;
}

}  // namespace

// The tensors of a pass, each a whole [rows, ...] tensor in memory.
struct PlainPass::Buffers {
  // ..._heads: [B, H, S, head_dim]; all others [rows, ...].
  float *input, *x, *y, *q, *k, *v, *q_heads, *k_heads, *v_heads, *attended, *hidden, *activated, *scores, *weights;

  static Buffers place(float* scratch, const StackConfig& c, std::int64_t rows, std::int64_t score_floats,
                       std::int64_t* total) {
    std::int64_t used = 0;
    const auto take = [&](std::int64_t floats) {
      float* at = scratch + used;
      used += cpu::whole_lines(floats);
      return at;
    };
    const std::int64_t activation = rows * c.d_model;
    Buffers b{};
    for (float** tensor : {&b.input, &b.x, &b.y, &b.q, &b.k, &b.v, &b.q_heads, &b.k_heads, &b.v_heads, &b.attended}) {
      *tensor = take(activation);
    }
    b.hidden = take(rows * c.d_ff);
    b.activated = take(rows * c.d_ff);
    b.scores = take(score_floats);
    b.weights = take(score_floats);
    if (total) *total = used;
    return b;
  }
};

namespace {

std::int64_t stored_score_floats(const StackConfig& c, std::int64_t batch, std::int64_t seq, std::int64_t query_block,
                                 int workers) {
  return query_block == seq ? batch * c.n_heads * seq * seq : workers * query_block * seq;
}

}  // namespace

std::int64_t PlainPass::scratch_floats(const StackConfig& config, std::int64_t batch, std::int64_t seq,
                                       std::int64_t query_block, int workers) {
  std::int64_t total = 0;
  Buffers::place(nullptr, config, batch * seq, stored_score_floats(config, batch, seq, query_block, workers), &total);
  return total;
}

PlainPass::PlainPass(const Weights& weights, std::int64_t batch, std::int64_t seq, std::int64_t query_block,
                     int workers)
    : weights_(weights),
      config_(weights.config()),
      batch_(batch),
      seq_(seq),
      query_block_(std::min(query_block, seq)),
      rows_(batch * seq),
      rows_per_block_(cpu::ceil_div(rows_, workers)),
      workers_(workers),
      scratch_floats_(scratch_floats(config_, batch, seq, query_block_, workers)) {
  for (const LayerWeights& w : weights.layers()) {
    const auto bind = [&](const LinearWeights& linear) {
      return Linear{linear.bias, products(linear, rows_, rows_per_block_, workers)};
    };
    layers_.push_back({&w, bind(w.q_proj), bind(w.k_proj), bind(w.v_proj), bind(w.out_proj), bind(w.fc1), bind(w.fc2)});
  }
  const std::int64_t width = config_.head_dim();
  for (const std::int64_t queries : {query_block_, seq % query_block_}) {
    if (queries > 0) attention_.emplace_back(queries, seq, width, width, width, config_.causal, workers);
  }
}

template <class F>
void PlainPass::each_row_block(F&& f) {
  const cpu::ForkTeam team{cpu::ThreadPool::shared(), workers_};
  team.each(cpu::ceil_div(rows_, rows_per_block_), [&](int worker, std::int64_t block) {
    const std::int64_t first = block * rows_per_block_;
    f(worker, first, std::min(rows_per_block_, rows_ - first));
  });
}

void PlainPass::run(const Call& call, float* scratch) {
  const Buffers b = Buffers::place(scratch, config_, rows_,
                                   stored_score_floats(config_, batch_, seq_, query_block_, workers_), nullptr);
  std::int64_t ld = 0;
  const float* x = cpu::direct_rows(call.input, 0, &ld);
  if (!x || ld != config_.d_model) {
    each_row_block([&](int, std::int64_t first, std::int64_t rows) {
      cpu::load_rows(call.input, first, rows, b.input + first * config_.d_model);
    });
    x = b.input;
  }
  for (const Layer& l : layers_) {
    float* y = x == b.x ? b.y : b.x;
    layer(l, call, b, x, y);
    x = y;
  }
  if (const NormWeights* final_norm = weights_.final_norm()) {
    float* y = x == b.x ? b.y : b.x;
    norm(*final_norm, x, y);
    x = y;
  }
  each_row_block([&](int, std::int64_t first, std::int64_t rows) {
    cpu::store_rows(x + first * config_.d_model, first, rows, call.output);
  });
}

// y = one layer of x. q, k, v and `attended` are free again after attention and serve as temporaries.
void PlainPass::layer(const Layer& layer, const Call& call, const Buffers& b, const float* x, float* y) {
  const std::int64_t d = config_.d_model, f = config_.d_ff;
  const bool pre = config_.norm == NormPlacement::pre;
  const LayerWeights& w = *layer.weights;

  const float* attention_input = x;
  if (pre) {
    norm(w.norm1, x, b.attended);
    attention_input = b.attended;
  }
  linear(layer.q, attention_input, d, b.q, d);
  linear(layer.k, attention_input, d, b.k, d);
  linear(layer.v, attention_input, d, b.v, d);
  split_heads(b.q, b.q_heads);
  split_heads(b.k, b.k_heads);
  split_heads(b.v, b.v_heads);
  attention(call, b);  // leaves its answer in q_heads: Q is used up
  merge_heads(b.q_heads, b.attended);
  linear(layer.out, b.attended, d, b.q, d);
  add(x, b.q, b.k);
  const float* residual = b.k;  // what the second sublayer adds to
  float* ffn_input = b.v;
  norm(pre ? w.norm2 : w.norm1, b.k, ffn_input);
  if (!pre) residual = ffn_input;
  linear(layer.fc1, ffn_input, d, b.hidden, f);
  activate(b.hidden, b.activated);
  linear(layer.fc2, b.activated, f, b.q, d);
  add(residual, b.q, pre ? y : b.attended);
  if (!pre) norm(w.norm2, b.attended, y);
}

void PlainPass::attention(const Call& call, const Buffers& b) {
  if (query_block_ == seq_)
    attend_stored(call, b);
  else
    attend_blocked(call, b);
}

void PlainPass::attend_stored(const Call& call, const Buffers& b) {
  const PlainAttention& a = attention_.front();
  const std::int64_t units = batch_ * config_.n_heads;
  const cpu::ForkTeam team{cpu::ThreadPool::shared(), workers_};
  const float* from = b.scores;
  float* to = b.weights;
  const auto pass = [&](auto&& step) {  // from one tensor to the other
    team.each(units, [&](int, std::int64_t u) { step(u, from + u * a.score_floats(), to + u * a.score_floats()); });
    from = std::exchange(to, to == b.scores ? b.weights : b.scores);
  };
  team.each(units,
            [&](int worker, std::int64_t u) { a.score(worker, head(b, u, 0), b.scores + u * a.score_floats()); });
  pass([&](std::int64_t, const float* s, float* t) { a.scale(s, t); });
  if (config_.causal) pass([&](std::int64_t u, const float* s, float* t) { a.mask_causal(head(b, u, 0), s, t); });
  if (call.mask) pass([&](std::int64_t u, const float* s, float* t) { a.mask_keys(key_mask(call, u), s, t); });
  pass([&](std::int64_t, const float* s, float* t) { a.softmax(s, t); });
  team.each(units, [&](int worker, std::int64_t u) {
    a.weigh(worker, from + u * a.score_floats(), head(b, u, 0), key_mask(call, u));
  });
}

void PlainPass::attend_blocked(const Call& call, const Buffers& b) {
  const std::int64_t blocks = cpu::ceil_div(seq_, query_block_);
  const cpu::ForkTeam team{cpu::ThreadPool::shared(), workers_};
  team.each(batch_ * config_.n_heads * blocks, [&](int worker, std::int64_t item) {
    const std::int64_t unit = item / blocks, block = item % blocks;
    const bool whole = (block + 1) * query_block_ <= seq_;
    const PlainAttention& a = whole ? attention_.front() : attention_.back();
    float* from = b.scores + worker * query_block_ * seq_;
    float* to = b.weights + worker * query_block_ * seq_;
    const HeadViews views = head(b, unit, block * query_block_);
    a.score(worker, views, from);
    a.scale(from, to);
    std::swap(from, to);
    if (config_.causal) a.mask_causal(views, from, to), std::swap(from, to);
    if (call.mask) a.mask_keys(key_mask(call, unit), from, to), std::swap(from, to);
    a.softmax(from, to);
    a.weigh(worker, to, views, key_mask(call, unit));
  });
}

HeadViews PlainPass::head(const Buffers& b, std::int64_t unit, std::int64_t q0) const {
  const std::int64_t at = unit * seq_ * config_.head_dim();
  return {q0, b.q_heads + at, b.k_heads + at, b.v_heads + at, b.q_heads + at};
}

KeyMask PlainPass::key_mask(const Call& call, std::int64_t unit) const {
  if (!call.mask) return {};
  return {call.mask->data + unit / config_.n_heads * call.mask->strides[0], call.mask->strides[1]};
}

void PlainPass::linear(const Linear& linear, const float* x, std::int64_t ldx, float* y, std::int64_t ldy) {
  if (!linear.bias.empty()) {
    each_row_block([&](int, std::int64_t first, std::int64_t rows) {
      for (std::int64_t r = first; r < first + rows; ++r) std::ranges::copy(linear.bias, y + r * ldy);
    });
  }
  each_row_block([&](int worker, std::int64_t first, std::int64_t rows) {
    const cpu::Product& whole = linear.by_rows.front();
    const cpu::Product& product = whole.spec().rows == rows ? whole : linear.by_rows.back();
    product.run(worker, x + first * ldx, y + first * ldy);
  });
}

// [B, S, H, head_dim] to [B, H, S, head_dim], and back.
void PlainPass::split_heads(const float* from, float* to) {
  const std::int64_t width = config_.head_dim(), heads = config_.n_heads;
  each_row_block([&](int, std::int64_t first, std::int64_t rows) {
    for (std::int64_t r = first; r < first + rows; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        std::copy_n(from + (r * heads + h) * width, width, to + ((r / seq_ * heads + h) * seq_ + r % seq_) * width);
      }
    }
  });
}

void PlainPass::merge_heads(const float* from, float* to) {
  const std::int64_t width = config_.head_dim(), heads = config_.n_heads;
  each_row_block([&](int, std::int64_t first, std::int64_t rows) {
    for (std::int64_t r = first; r < first + rows; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        std::copy_n(from + ((r / seq_ * heads + h) * seq_ + r % seq_) * width, width, to + (r * heads + h) * width);
      }
    }
  });
}

void PlainPass::norm(const NormWeights& norm, const float* x, float* y) {
  const std::int64_t d = config_.d_model;
  each_row_block([&](int, std::int64_t first, std::int64_t rows) {
    cpu::vec_kernels().layer_norm(x + first * d, d, y + first * d, d, rows, d, norm.weight.data(),
                                  norm.bias.empty() ? nullptr : norm.bias.data(), static_cast<float>(config_.eps));
  });
}

void PlainPass::add(const float* a, const float* b, float* y) {
  const std::int64_t d = config_.d_model;
  each_row_block([&](int, std::int64_t first, std::int64_t rows) {
    cpu::vec_kernels().add(a + first * d, d, b + first * d, d, y + first * d, d, rows, d);
  });
}

void PlainPass::activate(const float* x, float* y) {
  const cpu::VecKernels& vec = cpu::vec_kernels();
  each_row_block([&](int, std::int64_t first, std::int64_t rows) {
    const float* from = x + first * config_.d_ff;
    float* to = y + first * config_.d_ff;
    const std::int64_t n = rows * config_.d_ff;
    switch (config_.activation) {
      case Activation::gelu_erf:
        return vec.gelu_erf(from, to, n);
      case Activation::gelu_tanh:
        return vec.gelu_tanh(from, to, n);
      case Activation::relu:
        return vec.relu(from, to, n);
    }
  });
}

void forward(const Weights& weights, const Call& call, int workers) {
  constexpr std::int64_t kScratchFloats = std::int64_t{1} << 27;  // 512 MiB, unless one sequence needs more
  const StackConfig& config = weights.config();
  const std::int64_t batch = call.input.shape[0], seq = call.input.shape[1];
  if (batch == 0 || seq == 0) return;
  const std::int64_t query_block = std::min<std::int64_t>(seq, 512);
  std::int64_t slice = batch;
  while (slice > 1 && PlainPass::scratch_floats(config, slice, seq, query_block, workers) > kScratchFloats) {
    slice = cpu::ceil_div(slice, 2);
  }
  std::unique_ptr<PlainPass> pass;
  cpu::AlignedBuffer scratch;
  for (std::int64_t first = 0, n; first < batch; first += n) {
    n = std::min(slice, batch - first);
    if (first == 0 || n != slice) {
      pass = std::make_unique<PlainPass>(weights, n, seq, query_block, workers);
      scratch = cpu::AlignedBuffer(static_cast<std::size_t>(pass->scratch_floats()) * sizeof(float));
    }
    pass->run(sequences_of(call, first, n), reinterpret_cast<float*>(scratch.data()));
  }
}

}  // namespace gnomon::reference
