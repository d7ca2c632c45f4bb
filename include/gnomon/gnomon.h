/* Gnomon's C interface: a Transformer forward pass that measures instead of assuming.
 *
 * Every function that can fail returns a gnomon_status; gnomon_last_error() then says, in the calling thread, what was
 * expected, what came and what to do. No exception crosses this interface. Handles may be shared between threads
 * (options: while nobody sets one).
 * Strings returned through `char**` are the caller's: give them back with gnomon_free().
 */
#ifndef GNOMON_H
#define GNOMON_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GNOMON_API __attribute__((visibility("default")))
#else
#define GNOMON_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gnomon_status {
  GNOMON_OK = 0,
  GNOMON_CALLER_ERROR = 1,      /* the arguments were wrong; nothing ran */
  GNOMON_ENVIRONMENT_ERROR = 2, /* memory, files, libraries, devices */
  GNOMON_INTERNAL_ERROR = 3     /* a bug in Gnomon */
} gnomon_status;

typedef enum gnomon_dtype { GNOMON_F32 = 0, GNOMON_F16 = 1, GNOMON_BF16 = 2, GNOMON_F64 = 3 } gnomon_dtype;

typedef struct gnomon_weights gnomon_weights;
typedef struct gnomon_options gnomon_options;
typedef struct gnomon_engine gnomon_engine;

GNOMON_API const char* gnomon_version(void);      /* "0.1.0" */
GNOMON_API const char* gnomon_last_error(void);   /* of this thread; "" after a success */
GNOMON_API void gnomon_free(char* text);

/* ---- weights ---------------------------------------------------------------------------------------------------- */

/* A contiguous row-major tensor by its state_dict name. */
typedef struct gnomon_named_tensor {
  const char* name;
  const void* data;
  gnomon_dtype dtype;
  int32_t rank;
  const int64_t* shape;
} gnomon_named_tensor;

/* `config` is the configuration's part of the problem grammar: "d128 h4 l3 f512 causal post gelu".
 * fp32 tensors are used where they lie and must outlive the weights and every engine made from them. */
GNOMON_API gnomon_status gnomon_weights_from_tensors(const char* config, const gnomon_named_tensor* tensors, size_t count,
                                                     gnomon_weights** out);
/* `config` may be NULL when the file or a config.json beside it tells the structure. */
GNOMON_API gnomon_status gnomon_weights_from_safetensors(const char* path, const char* config, gnomon_weights** out);
GNOMON_API gnomon_status gnomon_weights_random(const char* config, uint64_t seed, gnomon_weights** out);
GNOMON_API gnomon_status gnomon_weights_save(const gnomon_weights* weights, const char* path);
GNOMON_API gnomon_status gnomon_weights_config(const gnomon_weights* weights, char** out);
GNOMON_API void gnomon_weights_destroy(gnomon_weights* weights);

/* ---- options and engine ------------------------------------------------------------------------------------------ */

GNOMON_API gnomon_status gnomon_options_create(gnomon_options** out);
/* device, effort (estimate|measure|exhaustive|stored), budget (seconds), total_budget, plan_dir, fp32_only (on|off),
 * exact_activation, memory_limit ("512MiB", of tensors, weights and scratch together), threads,
 * force ("fused_qkv=off,slices=4"), timing (warm|cold), background (on|off), abs, rel, headroom, max_plans,
 * range_check (device|off). */
GNOMON_API gnomon_status gnomon_options_set(gnomon_options* options, const char* name, const char* value);
GNOMON_API void gnomon_options_destroy(gnomon_options* options);

/* `options` may be NULL. The weights may be destroyed afterwards; tensors they view must live on. */
GNOMON_API gnomon_status gnomon_engine_create(const gnomon_weights* weights, const gnomon_options* options, gnomon_engine** out);
GNOMON_API void gnomon_engine_destroy(gnomon_engine* engine);

/* [B, S, d_model]; strides in elements. */
typedef struct gnomon_tensor {
  void* data;
  gnomon_dtype dtype;
  int64_t shape[3];
  int64_t strides[3];
} gnomon_tensor;

/* [B, S] bytes, nonzero = valid token; strides in bytes. */
typedef struct gnomon_mask {
  const uint8_t* data;
  int64_t shape[2];
  int64_t strides[2];
} gnomon_mask;

/* output = stack(input). `input` is only read unless it is also the output; `mask` may be NULL; `stream` is the device
 * stream (NULL on the CPU). Plans on the first call with a shape. */
GNOMON_API gnomon_status gnomon_forward(gnomon_engine* engine, const gnomon_tensor* input, const gnomon_mask* mask,
                                        const gnomon_tensor* output, void* stream);
/* Plans for this call without writing its output. */
GNOMON_API gnomon_status gnomon_plan(gnomon_engine* engine, const gnomon_tensor* input, const gnomon_mask* mask,
                                     const gnomon_tensor* output, void* stream);
/* Cuts short the planning that a call of another thread is waiting for: that call goes on with the best plan so far, which
 * is stored; the next engine plans anew. 1; or 0 when there is no such planning, or it was told before. Safe in a signal
 * handler: it does not touch gnomon_last_error(). */
GNOMON_API int gnomon_cancel(gnomon_engine* engine);
/* New weights of the same structure. */
GNOMON_API gnomon_status gnomon_engine_refresh(gnomon_engine* engine, const gnomon_weights* weights);

/* JSON: the record of one problem ("b64 s100"; the configuration is the engine's), `null` when it was never planned, or an
 * array of all when `problem` is NULL. */
GNOMON_API gnomon_status gnomon_explain(gnomon_engine* engine, const char* problem, char** out);
/* JSON: counters and sizes. */
GNOMON_API gnomon_status gnomon_stats(const gnomon_engine* engine, char** out);

/* ---- plan store --------------------------------------------------------------------------------------------------- */

GNOMON_API gnomon_status gnomon_plans_export(gnomon_engine* engine, char** out);
GNOMON_API gnomon_status gnomon_plans_import(gnomon_engine* engine, const char* json, int force, size_t* count);
/* `problem` NULL: all plans of this environment. */
GNOMON_API gnomon_status gnomon_plans_forget(gnomon_engine* engine, const char* problem, size_t* count);

#ifdef __cplusplus
}
#endif
#endif
