// What the kernels take: one struct each, passed by value. Host and device both read this file, so it holds no device
// code. A captured call is pointed at other tensors by replacing a kernel node's one argument.
#pragma once

namespace gnomon::kernels {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

// Rows of a [B, S, d] tensor whose strides, in elements, are the caller's. Row r is token r % seq of sequence r / seq.
// Where one stride covers all rows, seq is their number: no division.
struct RowStrides {
  i64 seq = 0, sequence = 0, token = 0, element = 1;
};

// A [B, S] mask of bytes, nonzero = valid token; data null: every token is valid. Strides in bytes.
struct MaskBytes {
  const u8* data = nullptr;
  i64 seq = 1, sequence = 0, token = 0;
};

// Bits that kernels set in a plan's flag word. Whoever acts on them clears them: decide, or the host.
enum CallFlag : u32 {
  kOutsideRange = 1,     // an input row's root mean square is outside the range the plan was verified on
  kOutputNotFinite = 2,  // an output element is NaN or infinite
};

// The caller's tensor to contiguous rows: an fp32 copy, a 16-bit copy, or both (null: not wanted).
struct LoadRows {
  const void* from;
  RowStrides strides;
  i64 rows;
  i32 width;
  float* wide;
  void* narrow;
  const float* range;  // {least, greatest} root mean square of a row, in device memory; null: unchecked
  MaskBytes mask;      // rows of zeros that it marks invalid are inside any range
  u32* flags;
  float* row_sizes;  // the root mean square of each row, -1 for invalid rows of zeros; null: not wanted
};

// sum = residual + branch + bias; normalised = LayerNorm(sum). Pointers are null where there is none.
struct NormRows {
  const void* residual;  // any strides: the first norm of a stack reads the caller's input
  RowStrides residual_strides;
  const u8* remainder;  // of the residual, where the kernel reads one: contiguous (remainder.cuh)
  const void* branch;   // contiguous, or as the kernel says; the outputs but `to` are contiguous
  const float* bias;
  const float* weight;  // null: no LayerNorm, the outputs take the sum
  const float* shift;
  float eps;
  i32 width;
  i64 rows;
  float* sum;         // pre-norm: the new residual
  float* normalised;  // post-norm: the new residual
  void* narrow;       // the normalised rows in the products' type; with a remainder they may lie over the residual
  u8* remainder_to;   // what these leave of the fp32 rows; null: not kept
  void* to;           // the caller's output, any strides
  RowStrides to_strides;
  u32* flags;  // kOutputNotFinite when `to` is; null: unchecked
};

// The first elements of a call's tensors, in device memory: for the nodes under a condition, whose parameters no host
// can replace.
struct CallTensors {
  const void* input;
  const u8* mask;
  void* output;
};

// Whether the fp32 pass answers. If so the flag is cleared, and what runs under the condition is told of the tensors.
struct Decide {
  CallTensors call;
  CallTensors* told;
  u32* flags;
  u64 condition;  // a conditional handle of the graph that this is a node of; 0: it was decided already
  u32* answered;  // counts the times
};

// The caller's rows to contiguous fp32 ones, once more.
struct ReloadRows {
  const CallTensors* call;
  RowStrides strides;
  i64 rows;
  i32 width;
  float* wide;
};

// Contiguous rows to the caller's.
struct CommitRows {
  const void* from;
  void* to;
  const CallTensors* call;  // in place of `to`, where it is not null
  RowStrides to_strides;
  i64 rows;
  i32 width;
  const u32* flags;  // only while this word is zero; null: in any case
};

// The whole stack in fp32 where the flag is up. Offsets are of the first layer's weights, in elements, -1: there is
// none; layers lie equally far apart.
struct ExactStack {
  const void* input;
  void* output;  // may be the input: a sequence is read before it is written
  RowStrides input_strides, output_strides;
  MaskBytes mask;
  const float* weights;
  i64 layer_stride;
  i32 qkv, bias_qkv, out, bias_out, fc1, bias_fc1, fc2, bias_fc2, norm1, shift1, norm2, shift2;
  const float *final_gain, *final_shift;  // null: there is none
  i64 batch;
  i32 layers, seq, width, heads, hidden, causal, pre_norm;
  float eps;
  float* scratch;  // of each block: [seq][2 width + max(3 width, hidden)]
  i64 scratch_block;
  u32* flags;
  u32* ended;     // blocks, zero before and after
  u32* answered;  // counts the times
};

struct Activate {
  const void* from;
  const float* bias;  // null: none
  void* to;           // may be `from`
  i64 rows;
  i32 width;
};

// The keys of a sequence that its mask leaves: [first, end) holds them all, and `count` of it are valid.
struct SequenceKeys {
  i32 first, end, count, reserved;
};

enum MaskClass : u32 { kAllValid = 0, kRightPadded = 1, kLeftPadded = 2, kAnyMask = 3 };

struct ClassifyMask {
  MaskBytes mask;
  const CallTensors* call;  // holds the mask's data, where it is not null
  i64 batch;
  SequenceKeys* keys;  // [batch]
  u32* bitmap;         // [batch][words]: bit k % 32 of word k / 32 is key k
  i64 words;
  u32* state;  // two words, zero before the first call: found so far, blocks that are done
  u32* kind;   // a MaskClass: the least that describes every sequence
};

struct Attention {
  const void *q, *k, *v;
  void* out;
  i64 q_row, k_row, v_row, out_row;  // elements from token to token
  i64 batch, seq;
  i32 heads;
  float scale;               // of the scores, times log2(e)
  const SequenceKeys* keys;  // per sequence; null: every key is valid
  const u32* bitmap;
  i64 words;
};

// Elementwise comparison under the contract. Contiguous tensors are one long row.
struct Comparison {
  u64 worst;  // a double's bits: of numbers that are not negative the order is that of the bits
  u64 out_of_contract;
  u64 first_bad;  // flat index; all ones: none
  double bad_value, bad_reference;
};
struct Compare {
  const void *u, *r;
  RowStrides u_strides, r_strides;
  i64 rows, width;
  double abs, rel;
  Comparison* result;
};

// Adds to `changed` the number of words that are not `pattern`.
struct CheckPattern {
  const u32* words;
  i64 n;
  u32 pattern;
  u64* changed;
};

// The reference's passes, each a kernel of its own, on contiguous fp32 tensors.
struct PlainElements {
  const float* a;
  const float* b;  // add: the other operand; add_bias: one row
  float* to;
  i64 n;
  i32 width;
  float factor;
};
// Scores [units][queries][seq] of the queries from `first_query` on; unit u is head u % heads of sequence u / heads.
struct PlainScores {
  const float* from;
  float* to;
  i64 units, queries, first_query, seq;
  i32 heads;
  MaskBytes mask;
};
// [batch][seq][heads][head_dim] and [batch][heads][seq][head_dim].
struct PlainHeads {
  const float* from;
  float* to;
  i64 batch, seq;
  i32 heads, head_dim;
};
// out[unit][query] = sum over the keys it sees of weights * v. (A product would let 0 * NaN through.)
struct PlainWeigh {
  PlainScores scores;  // `from`: the weights; `to`: [units][seq][head_dim]
  const float* v;      // [units][seq][head_dim]
  i32 head_dim;
  i32 causal;
};
struct PlainNorm {
  const float* x;
  const float* weight;
  const float* shift;  // null: none
  float* y;
  i64 rows;
  i32 width;
  float eps;
};

}  // namespace gnomon::kernels
