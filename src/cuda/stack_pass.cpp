#include "cuda/stack_pass.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/activation.hpp"
#include "cuda/border_steps.hpp"
#include "cuda/guard.hpp"
#include "cuda/mask.hpp"

namespace gnomon::cuda {
namespace {

Epilogue epilogue_for(Activation activation) {
  return activation == Activation::relu ? Epilogue::relu : Epilogue::gelu_tanh;
}

// Our tiles can write where they read; the library does not promise it, and its output has a place of its own.
bool attends_in_place(const Choices& choices) { return choices.compact && choices.tile != kCudnnTile; }

// In the compact form the FFN takes no more than Q, K and V: 3 d elements a row, less the d of its output.
std::int64_t ffn_rows(const StackConfig& config, const Choices& choices, std::int64_t rows) {
  if (!choices.compact) return rows;
  const auto attention = static_cast<std::int64_t>(size_of(operand_type(choices, Sublayer::attention))),
             ffn = static_cast<std::int64_t>(size_of(operand_type(choices, Sublayer::ffn)));
  return std::clamp<std::int64_t>(rows * (3 * attention - ffn) * config.d_model / (ffn * config.d_ff), 1, rows);
}

// Bytes of an element of the normalised rows beside the residual stream; 0: all products take that as it is.
std::size_t normalised_size(const StackConfig& config, const Choices& choices) {
  std::size_t size = 0;
  for (const Sublayer sublayer : {Sublayer::attention, Sublayer::ffn}) {
    const DType type = operand_type(choices, sublayer);
    if (type != DType::f32 || config.norm == NormPlacement::pre) size = std::max(size, size_of(type));
  }
  return size;
}

}  // namespace

AttentionSpec attention_spec(const StackConfig& config, const Choices& choices, std::int64_t sequences,
                             std::int64_t seq, bool masked) {
  AttentionSpec spec;
  spec.dtype = operand_type(choices, Sublayer::attention);
  spec.batch = sequences;
  spec.seq = seq;
  spec.heads = config.n_heads;
  spec.head_dim = config.head_dim();
  spec.causal = config.causal;
  spec.masked = masked;
  const std::int64_t row = config.d_model * static_cast<std::int64_t>(size_of(spec.dtype));
  spec.alignment = static_cast<int>(std::min<std::int64_t>(16, row & -row));
  return spec;
}

std::optional<AttentionTile> tile_of(const Choices& choices, const AttentionSpec& spec,
                                     const DeviceProperties& device) {
  if (choices.tile != "first") return AttentionTile::parse(choices.tile);
  const auto tiles = attention_tiles(spec, device);
  return tiles.empty() ? std::nullopt : std::optional(tiles.front());
}

StackPass::StackPass(Machine& machine, const Choices& choices, std::int64_t sequences, std::int64_t seq, DType border,
                     bool masked, const PassGuard& guard, std::int64_t query_block)
    : machine_(machine),
      config_(machine.weights.config()),
      choices_(choices),
      sequences_(sequences),
      seq_(seq),
      rows_(sequences * seq),
      border_(border),
      masked_(masked),
      guard_(guard),
      ffn_rows_(ffn_rows(config_, choices, rows_)),
      wide_(machine.weights.copy(DType::f32, machine.kernels, machine.ours)) {
  if (const auto narrow = narrow_type(choices)) narrow_ = machine.weights.copy(*narrow, machine.kernels, machine.ours);
  if (choices.fused_attention) {
    const AttentionSpec spec = attention_spec(config_, choices, sequences, seq, masked);
    if (choices.tile == kCudnnTile) {
      cudnn_ = machine.cudnn_session().attention(spec);
    } else {
      tile_ = tile_of(choices, spec, machine.device.properties());
    }
    if (!cudnn_ && !tile_) throw_environment("tile: '{}' is none of our attention's", choices.tile);
  } else {
    plain_attention_.emplace(machine, config_, sequences, seq, query_block == 0 ? seq : query_block, masked,
                             choices.precision == Precision::tf32);
  }
  bind_layers();
  std::size_t workspace = plain_attention_ ? plain_attention_->workspace_bytes()
                          : cudnn_         ? cudnn_->workspace_bytes()
                                           : 0;
  for (const Layer& layer : layers_) {
    for (const Product& one : layer.qkv) workspace = std::max(workspace, one.workspace_bytes());
    for (const auto* one : {&layer.out, &layer.fc1, &layer.fc2})
      workspace = std::max(workspace, (*one)->workspace_bytes());
  }
  place(workspace);
}

Product StackPass::product(Sublayer sublayer, ProductSpec spec, std::int64_t bias, int algorithm) const {
  if (spec.ldx == 0) spec.ldx = spec.in;
  if (spec.ldy == 0) spec.ldy = spec.out;
  spec.ldw = spec.in;
  spec.type = type_of(sublayer);
  spec.tf32 = precision_of(choices_, sublayer) == Precision::tf32;
  spec.bias = weights_of(spec.result).at(bias);
  return Product(machine_.blas, spec, algorithm);
}

// A fused norm adds the bias in fp32; a fused activation takes it in the product's epilogue.
void StackPass::bind_layers() {
  constexpr Sublayer attention = Sublayer::attention, ffn = Sublayer::ffn;
  const std::int64_t d = config_.d_model, f = config_.d_ff, apart = attends_in_place(choices_) ? 3 * d : d;
  for (const LayerAt& at : machine_.weights.layout().layers) {
    Layer& layer = layers_.emplace_back();
    const std::int64_t parts = choices_.fused_qkv ? 1 : 3, ldy = choices_.fused_attention ? 3 * d : d;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t bias = at.qkv.bias < 0 ? -1 : at.qkv.bias + part * d;
      layer.qkv.push_back(
          product(attention, {.rows = rows_, .in = d, .out = 3 * d / parts, .ldy = ldy, .result = type_of(attention)},
                  bias, choices_.algo_qkv));
    }
    const bool norm_adds = choices_.fused_norm;
    layer.out.emplace(product(
        attention, {.rows = rows_, .in = d, .out = d, .ldx = apart, .ldy = apart, .result = branch_type(attention)},
        norm_adds ? -1 : at.out.bias, choices_.algo_out));
    layer.fc1.emplace(product(ffn,
                              {.rows = ffn_rows_,
                               .in = d,
                               .out = f,
                               .result = type_of(ffn),
                               .epilogue = choices_.gemm_gelu ? epilogue_for(config_.activation) : Epilogue::none},
                              choices_.gemm_gelu ? at.fc1.bias : -1, choices_.algo_fc1));
    layer.fc2.emplace(product(ffn, {.rows = ffn_rows_, .in = f, .out = d, .result = branch_type(ffn)},
                              norm_adds ? -1 : at.fc2.bias, choices_.algo_fc2));
  }
}

void StackPass::place(std::size_t workspace) {
  const std::int64_t d = config_.d_model, f = config_.d_ff;
  const std::size_t t = size_of(type_of(Sublayer::attention));
  if (choices_.packed_residual) {
    remainder_ = places_.take(rows_ * d, 1);
  } else {
    x_ = places_.take(rows_ * d, sizeof(float));
  }
  if (const std::size_t copy = normalised_size(config_, choices_)) n_ = places_.take(rows_ * d, copy);
  if (!choices_.fused_norm) sum_ = places_.take(rows_ * d, sizeof(float));
  if (keeps_result()) result_ = places_.take(rows_ * d, size_of(border_));
  if (guard_.role == PassGuard::Role::fallback) told_ = places_.take(1, sizeof(kernels::CallTensors));
  if (masked_ && choices_.fused_attention) mask_ = places_.take(ClassifiedMask::bytes(sequences_, seq_), 1);
  workspace_ = places_.take(static_cast<std::int64_t>(workspace), 1);
  // Attention's tensors and the FFN's share their memory: when one is at work, nothing of the other is wanted.
  const std::size_t common = places_.end();
  if (choices_.fused_attention) {
    q_[0] = places_.take(rows_ * 3 * d, t);
    q_[1] = q_[0] + static_cast<std::size_t>(d) * t;
    q_[2] = q_[1] + static_cast<std::size_t>(d) * t;
  } else {
    for (std::size_t& at : q_) at = places_.take(rows_ * d, t);
    plain_attention_->place(places_);
  }
  // Q is read for the last time by who writes there, K and V by then.
  const bool in_place = attends_in_place(choices_);
  attended_ = in_place ? q_[0] : places_.take(rows_ * d, t);
  branch_ = in_place ? q_[1] : choices_.fused_norm ? q_[0] : places_.take(rows_ * d, sizeof(float));
  const std::size_t with_attention = places_.end();
  places_.back_to(common);
  hidden_ = places_.take(ffn_rows_ * f, size_of(type_of(Sublayer::ffn)));
  branch2_ = places_.take(rows_ * d, size_of(branch_type(Sublayer::ffn)));
  places_.at_least(with_attention);
}

// Writes the steps of one pass.
class StackPass::Writer {
 public:
  Writer(StackPass& pass, StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout)
      : pass_(pass),
        machine_(pass.machine_),
        c_(pass.config_),
        choices_(pass.choices_),
        steps_(steps),
        scratch_(scratch),
        part_(part),
        layout_(layout) {}

  void write() {
    const bool pre = c_.norm == NormPlacement::pre;
    const auto& layers = machine_.weights.layout().layers;
    load();
    if (pass_.masked_ && choices_.fused_attention) classify();
    if (pre) norm_alone(layers.front().norm1, Sublayer::attention);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool last = i + 1 == layers.size();
      const NormAt* const after_ffn = !pre            ? &layers[i].norm2
                                      : !last         ? &layers[i + 1].norm1
                                      : c_.final_norm ? &final_norm()
                                                      : nullptr;
      attention(i);
      const bool to_input = i == 0 && adds_to_input();
      add_branch(Sublayer::attention, to_input ? Residual::caller : Residual::stream, layers[i].out.bias,
                 pre ? &layers[i].norm2 : &layers[i].norm1, false);
      ffn(i);
      add_branch(Sublayer::ffn, Residual::stream, layers[i].fc2.bias, after_ffn, last && (pre || !c_.final_norm));
    }
    if (!pre && c_.final_norm) to_caller(norm_of(Residual::stream, std::nullopt, &final_norm(), std::nullopt));
    if (pass_.keeps_result()) commit();
  }

 private:
  enum class Residual { caller, stream, sum };  // the caller's rows; the pass's; these and a branch, not normalised yet

  std::byte* at(std::size_t place) const { return scratch_ + place; }
  kernels::u8* remainder() const { return reinterpret_cast<kernels::u8*>(at(pass_.remainder_)); }
  float* x() const { return reinterpret_cast<float*>(at(pass_.x_)); }
  const NormAt& final_norm() const { return machine_.weights.layout().final_norm; }
  std::int64_t rows() const { return pass_.rows_; }

  void load() {
    const PassGuard& guard = pass_.guard_;
    if (guard.role == PassGuard::Role::fallback) return reload();
    const DType type = pass_.type_of(Sublayer::attention);
    const bool narrow = type != DType::f32 && c_.norm == NormPlacement::post;
    add_load(steps_, machine_, part_, layout_, adds_to_input() ? nullptr : x(),
             narrow ? std::optional(type) : std::nullopt, narrow ? at(pass_.n_) : nullptr, guard.range, guard.flag);
  }

  // Whether the first norm takes its residual from the caller's rows, as they are: then no fp32 copy of them is made.
  // The output is written by later steps, so it may be the input. Below a condition no step can follow the caller.
  bool adds_to_input() const {
    return pass_.type_of(Sublayer::attention) != DType::f32 && c_.norm == NormPlacement::post && choices_.fused_norm &&
           pass_.guard_.role != PassGuard::Role::fallback;
  }

  void reload() {
    told_ = reinterpret_cast<kernels::CallTensors*>(at(pass_.told_));
    add_decision(steps_, machine_, pass_.guard_, told_);
    auto launch = reload_rows(machine_.kernels, pass_.border_, rows(), c_.d_model);
    launch.params.call = told_;
    launch.params.strides = row_access(part_.input).strides;
    launch.params.wide = x();
    steps_.add(launch);
  }

  void classify() {
    mask_ = ClassifiedMask::place(at(pass_.mask_), pass_.sequences_, pass_.seq_);
    mask_->state = scratch_.zeros;
    auto launch = classify_mask(machine_.kernels, pass_.sequences_, pass_.seq_, *mask_);
    launch.params.mask = mask_bytes(part_.mask);
    launch.params.call = told_;
    steps_.add(launch);
    if (told_) return;
    steps_.follow(offsetof(kernels::ClassifyMask, mask) + offsetof(kernels::MaskBytes, data),
                  [](const Border& border) { return border.mask; });
  }

  void multiply(Sublayer sublayer, const Product& product, const void* from, std::int64_t weight, void* to) {
    const WeightsCopy& weights = pass_.weights_of(pass_.type_of(sublayer));
    steps_.add(ProductStep{&product, from, weights.at(weight), to, at(pass_.workspace_)});
  }

  void attention(std::size_t index) {
    const Layer& layer = pass_.layers_[index];
    const LayerAt& weights = machine_.weights.layout().layers[index];
    const std::int64_t d = c_.d_model;
    for (std::size_t part = 0; part < layer.qkv.size(); ++part)
      multiply(Sublayer::attention, layer.qkv[part], at(pass_.operand_of(Sublayer::attention)),
               weights.qkv.weight + static_cast<std::int64_t>(part) * d * d, at(pass_.q_[part]));
    if (pass_.plain_attention_) {
      const auto floats = [&](std::size_t place) { return reinterpret_cast<float*>(at(place)); };
      pass_.plain_attention_->add_steps(steps_, scratch_.data, floats(pass_.q_[0]), floats(pass_.q_[1]),
                                        floats(pass_.q_[2]), floats(pass_.attended_), mask_bytes(part_.mask),
                                        at(pass_.workspace_));
    } else if (pass_.cudnn_) {
      if (!arguments_)  // the same in every layer
        arguments_ = std::make_shared<const DnnDescriptor>(
            pass_.cudnn_->arguments(at(pass_.q_[0]), at(pass_.attended_), at(pass_.workspace_)));
      steps_.add(DnnAttentionStep{&machine_.cudnn_session(), pass_.cudnn_, arguments_});
    } else {
      const AttentionSpec spec = attention_spec(c_, choices_, pass_.sequences_, pass_.seq_, pass_.masked_);
      auto launch = gnomon::cuda::attention(machine_.kernels, spec, *pass_.tile_, mask_ ? &*mask_ : nullptr);
      launch.params.q = at(pass_.q_[0]);
      launch.params.k = at(pass_.q_[1]);
      launch.params.v = at(pass_.q_[2]);
      launch.params.out = at(pass_.attended_);
      if (attends_in_place(choices_)) launch.params.out_row = 3 * c_.d_model;
      steps_.add(launch);
    }
    multiply(Sublayer::attention, *layer.out, at(pass_.attended_), weights.out.weight, at(pass_.branch_));
  }

  // Its last part ends with the rows, and so may compute some of the part before again.
  void ffn(std::size_t index) {
    const Layer& layer = pass_.layers_[index];
    const LayerAt& weights = machine_.weights.layout().layers[index];
    const std::int64_t part = pass_.ffn_rows_, row = c_.d_model;
    const DType type = pass_.type_of(Sublayer::ffn);
    const auto size = static_cast<std::int64_t>(size_of(type)),
               branch_size = static_cast<std::int64_t>(size_of(pass_.branch_type(Sublayer::ffn)));
    for (std::int64_t begin = 0; begin < rows(); begin += part) {
      const std::int64_t first = std::min(begin, rows() - part);
      multiply(Sublayer::ffn, *layer.fc1, at(pass_.operand_of(Sublayer::ffn)) + first * row * size, weights.fc1.weight,
               at(pass_.hidden_));
      if (!choices_.gemm_gelu) {
        auto launch = activate(machine_.kernels, type, c_.activation, part, c_.d_ff);
        launch.params.from = launch.params.to = at(pass_.hidden_);
        launch.params.bias = pass_.wide_->floats(weights.fc1.bias);
        steps_.add(launch);
      }
      multiply(Sublayer::ffn, *layer.fc2, at(pass_.hidden_), weights.fc2.weight,
               at(pass_.branch2_) + first * row * branch_size);
    }
  }

  // A launch that normalises residual + branch for the sublayer that reads it; without one, to the caller's type.
  Launch<kernels::NormRows> norm_of(Residual residual, std::optional<DType> branch, const NormAt* weights,
                                    std::optional<Sublayer> reader, int branch_step = 1) {
    const bool out = !reader, narrow = reader && pass_.type_of(*reader) != DType::f32;
    const bool callers = residual == Residual::caller, packed = choices_.packed_residual;
    const int vec = std::min({widest_vec(c_.d_model), out && !pass_.keeps_result() ? layout_.output_vec : 8,
                              callers ? layout_.input_vec : 8});
    NormTypes types{.branch = branch};
    if (callers) types.residual = pass_.border_;
    if (packed && residual == Residual::stream) {
      types.residual = pass_.type_of(Sublayer::attention);
      types.remainder = true;
    }
    if (narrow) types.narrow = pass_.type_of(*reader);
    if (out) types.out = pass_.border_;
    auto launch = norm_rows(machine_.kernels, types, rows(), c_.d_model, vec, branch_step);
    if (callers) {
      launch.params.residual = part_.input.data;
      launch.params.residual_strides = row_access(part_.input).strides;
    } else if (types.remainder) {
      launch.params.residual = at(pass_.n_);
      launch.params.remainder = remainder();
    } else {
      launch.params.residual = residual == Residual::sum ? at(pass_.sum_) : at(pass_.x_);
    }
    launch.params.eps = static_cast<float>(c_.eps);
    if (weights) {
      launch.params.weight = pass_.wide_->floats(weights->weight);
      launch.params.shift = pass_.wide_->floats(weights->bias);
    }
    if (out) return launch;
    const bool pre = c_.norm == NormPlacement::pre;
    if (narrow) launch.params.narrow = at(pass_.n_);
    if (!pre && packed) launch.params.remainder_to = remainder();
    if (!pre && !packed) launch.params.normalised = x();
    if (pre && !narrow) launch.params.normalised = reinterpret_cast<float*>(at(pass_.n_));
    return launch;
  }

  void norm_alone(const NormAt& weights, Sublayer reader) {
    steps_.add(norm_of(Residual::stream, std::nullopt, &weights, reader));
  }

  void to_caller(Launch<kernels::NormRows> launch) {
    if (!pass_.keeps_result()) return add_to_output(steps_, launch, part_, pass_.guard_.flag);
    launch.params.to = at(pass_.result_);
    if (pass_.guard_.role == PassGuard::Role::guarded) launch.params.flags = pass_.guard_.flag;
    steps_.add(launch);
  }

  // x = residual + what the sublayer gave + bias, normalised as the placement asks for the other sublayer; `last`: the
  // answer.
  void add_branch(Sublayer from, Residual residual, std::int64_t bias, const NormAt* weights, bool last) {
    const bool pre = c_.norm == NormPlacement::pre, attended = from == Sublayer::attention;
    const std::byte* const branch = at(attended ? pass_.branch_ : pass_.branch2_);
    std::optional<Sublayer> reader;
    if (!last) reader = attended ? Sublayer::ffn : Sublayer::attention;
    std::optional<DType> branch_type;
    if (choices_.fused_norm) {
      branch_type = pass_.branch_type(from);
    } else {
      float* const sum = reinterpret_cast<float*>(at(pass_.sum_));
      float* const to = pre ? x() : sum;
      steps_.add(PlainOps(machine_.kernels).add(x(), reinterpret_cast<const float*>(branch), to, rows() * c_.d_model));
      residual = pre ? Residual::stream : Residual::sum;
    }
    auto launch = norm_of(residual, branch_type, weights, reader, attended && attends_in_place(choices_) ? 3 : 1);
    if (choices_.fused_norm) {
      launch.params.branch = branch;
      launch.params.bias = pass_.wide_->floats(bias);
      if (pre && !last) launch.params.sum = x();
    }
    if (last) return to_caller(launch);
    steps_.add(launch);
    if (residual == Residual::caller)
      steps_.follow(offsetof(kernels::NormRows, residual), [](const Border& border) { return border.input; });
  }

  void commit() {
    auto launch = commit_rows(machine_.kernels, pass_.border_, rows(), c_.d_model, layout_.output_vec);
    launch.params.from = at(pass_.result_);
    launch.params.to_strides = row_access(part_.output).strides;
    launch.params.call = told_;
    if (!told_) launch.params.flags = pass_.guard_.flag;
    steps_.add(launch);
    if (told_) return;
    steps_.follow(offsetof(kernels::CommitRows, to), [](const Border& border) -> const void* { return border.output; });
  }

  StackPass& pass_;
  Machine& machine_;
  const StackConfig& c_;
  const Choices& choices_;
  StepList& steps_;
  const Scratch& scratch_;
  const Call& part_;
  const BorderLayout& layout_;
  std::optional<ClassifiedMask> mask_;
  std::shared_ptr<const DnnDescriptor> arguments_;
  kernels::CallTensors* told_ = nullptr;  // a fallback's: where its body finds the caller's tensors
};

void StackPass::write_steps(StepList& steps, const Scratch& scratch, const Call& part, const BorderLayout& layout) {
  Writer(*this, steps, scratch, part, layout).write();
}

std::size_t stack_scratch_bytes(const StackConfig& config, const Choices& choices, std::int64_t sequences,
                                std::int64_t seq, DType border, bool masked, bool keeps_result,
                                std::int64_t query_block) {
  const double rows = static_cast<double>(sequences) * static_cast<double>(seq);
  const double d = static_cast<double>(config.d_model), f = static_cast<double>(config.d_ff);
  const double t = static_cast<double>(size_of(operand_type(choices, Sublayer::attention)));
  const double t_ffn = static_cast<double>(size_of(operand_type(choices, Sublayer::ffn)));
  double common = rows * d *
                  ((choices.packed_residual ? 1 : 4) + static_cast<double>(normalised_size(config, choices)) +
                   (choices.fused_norm ? 0 : 4));
  if (keeps_result) common += rows * d * static_cast<double>(size_of(border));
  if (masked && choices.fused_attention) common += static_cast<double>(ClassifiedMask::bytes(sequences, seq));
  double attention = rows * d * ((attends_in_place(choices) ? 3 : 4) * t + (choices.fused_norm ? 0 : 4));
  if (!choices.fused_attention) {
    const double scores = static_cast<double>(sequences * config.n_heads) *
                          static_cast<double>(std::min(query_block, seq)) * static_cast<double>(seq);
    attention += 16 * rows * d + 8 * scores;
  }
  const auto hidden_rows = static_cast<double>(ffn_rows(config, choices, sequences * seq));
  const double ffn = hidden_rows * f * t_ffn + rows * d * (choices.fused_norm ? t_ffn : 4);
  return static_cast<std::size_t>(std::min(common + std::max(attention, ffn) + kMostWorkspace + 16384, 1e18));
}

}  // namespace gnomon::cuda
