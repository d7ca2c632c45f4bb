/* One forward pass from C: weights from a .safetensors file (or random ones), a batch with padding, the plan explained.
 *
 *   forward [WEIGHTS.safetensors [CONFIG]]
 */
#include <stdio.h>
#include <stdlib.h>

#include <gnomon/gnomon.h>

enum { batch = 8, seq = 32 };

static int failed(const char* step) {
  fprintf(stderr, "%s: %s\n", step, gnomon_last_error());
  return 1;
}

static gnomon_status load(int argc, char** argv, gnomon_weights** weights) {
  if (argc < 2) return gnomon_weights_random("d64 h4 l2 f256 bi", 1, weights);
  return gnomon_weights_from_safetensors(argv[1], argc > 2 ? argv[2] : NULL, weights);
}

static long width_of(const gnomon_weights* weights) {
  char* config = NULL;
  long width = 0;
  if (gnomon_weights_config(weights, &config) == GNOMON_OK) sscanf(config, "d%ld", &width);
  gnomon_free(config);
  return width;
}

int main(int argc, char** argv) {
  gnomon_weights* weights = NULL;
  gnomon_options* options = NULL;
  gnomon_engine* engine = NULL;
  if (load(argc, argv, &weights) != GNOMON_OK) return failed("weights");
  if (gnomon_options_create(&options) != GNOMON_OK) return failed("options");
  if (gnomon_options_set(options, "budget", "2") != GNOMON_OK) return failed("option budget");
  if (gnomon_engine_create(weights, options, &engine) != GNOMON_OK) return failed("engine");

  const long d = width_of(weights);
  const size_t elements = (size_t)batch * seq * (size_t)d;
  float* x = malloc(elements * sizeof *x);
  float* y = malloc(elements * sizeof *y);
  uint8_t valid[batch][seq];
  if (x == NULL || y == NULL) return 1;
  for (size_t i = 0; i < elements; ++i) x[i] = (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
  for (int b = 0; b < batch; ++b) {
    for (int s = 0; s < seq; ++s) valid[b][s] = s < seq - 2 * b; /* sequence b is 2*b tokens shorter */
  }

  const gnomon_tensor input = {x, GNOMON_F32, {batch, seq, d}, {seq * d, d, 1}};
  const gnomon_tensor output = {y, GNOMON_F32, {batch, seq, d}, {seq * d, d, 1}};
  const gnomon_mask mask = {&valid[0][0], {batch, seq}, {seq, 1}};
  if (gnomon_forward(engine, &input, &mask, &output, NULL) != GNOMON_OK) return failed("forward");
  printf("y[0] = %.4f %.4f %.4f ...\n", y[0], y[1], y[2]);

  char* explanation = NULL;
  if (gnomon_explain(engine, "b8 s32 mask", &explanation) != GNOMON_OK) return failed("explain");
  printf("%.300s\n", explanation);
  gnomon_free(explanation);

  free(x);
  free(y);
  gnomon_engine_destroy(engine);
  gnomon_options_destroy(options);
  gnomon_weights_destroy(weights);
  return 0;
}
