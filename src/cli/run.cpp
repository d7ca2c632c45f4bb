// `gnomon run WEIGHTS -i INPUT -o OUTPUT`: one forward pass over files.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/buffer.hpp"
#include "cli/device_call.hpp"
#include "cli/engine_flags.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/tensor_file.hpp"

namespace gnomon::cli {
namespace {

struct Arguments {
  explicit Arguments(CLI::App& command) : engine(command) {}
  EngineFlags engine;
  std::string weights, input, mask, output, config;
  std::string input_name, mask_name, output_name = "output";
};

struct Files {
  LoadedTensor input;
  std::optional<LoadedTensor> mask;
};

Weights load_weights(const Arguments& arguments) {
  if (arguments.config.empty()) return Weights::from_safetensors(arguments.weights, std::nullopt);
  return Weights::from_safetensors(arguments.weights, parse_stack_config(arguments.config));
}

Call call_of(const Files& files, Buffer& output) {
  Call call;
  call.input = as_input(files.input);
  if (files.mask) call.mask = as_mask(*files.mask);
  output = Buffer(static_cast<std::size_t>(call.input.elements()) * size_of(call.input.dtype));
  call.output = TensorView::contiguous(output.data(), call.input.dtype, call.input.shape);
  return call;
}

void run(const Arguments& arguments, const Session& session) {
  Files files{load_tensor(arguments.input, arguments.input_name), std::nullopt};
  if (!arguments.mask.empty()) files.mask = load_tensor(arguments.mask, arguments.mask_name);
  Buffer output;
  const Call call = call_of(files, output);

  ProgressLine progress;
  EngineOptions options = arguments.engine.options();
  options.progress = progress.planner("run");
  Engine engine(load_weights(arguments), options);
  const InterruptiblePlanning interruptible(engine);
  const Problem problem = problem_of(engine.config(), call, options.contract, options.device);
  DeviceCall on_device(options.device, call);
  const double start = steady_clock().now();
  engine.forward(on_device.call());  // plans when it must
  on_device.fetch_output();
  const double seconds = steady_clock().now() - start;
  const bool planned = engine.stats().problems_planned > 0;
  progress.clear();

  const auto result = ConstTensorView::contiguous(output.data(), call.output.dtype, call.output.shape);
  save_tensor(arguments.output, arguments.output_name, result);
  if (session.json) {
    const nlohmann::ordered_json json = {
        {"problem", to_string(problem)},       {"output", arguments.output}, {"shape", call.output.shape},
        {"dtype", name_of(call.output.dtype)}, {"seconds", seconds},         {"planned", planned}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}: [{}] {} in {:.3f} ms{}  ({})\n", arguments.output, fmt::join(call.output.shape, ", "),
               name_of(call.output.dtype), seconds * 1e3, planned ? ", planning included" : "", to_string(problem));
  }
}

}  // namespace

void add_run(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("run", "Run a stack from files: weights and input to output");
  auto arguments = std::make_shared<Arguments>(*command);
  command->add_option("WEIGHTS", arguments->weights, "The weights, a .safetensors file")->required();
  command->add_option("-i,--input", arguments->input, "The input [B, S, d_model], .npy or .safetensors")->required();
  command->add_option("-o,--output", arguments->output, "Where the output goes, .npy or .safetensors")->required();
  command->add_option("-m,--mask", arguments->mask, "A padding mask [B, S] of bool or uint8, nonzero = valid token");
  command->add_option("--config", arguments->config,
                      "The structure, as \"d128 h4 l3 f512 causal post gelu\", when the weights do not tell it");
  command->add_option("--input-name", arguments->input_name,
                      "The input's name in a .safetensors file of several tensors");
  command->add_option("--mask-name", arguments->mask_name, "The mask's name in such a file");
  command->add_option("--output-name", arguments->output_name,
                      "The output's name in a .safetensors file (default: output)");
  add_json_flag(*command, session);
  command->footer(
      "\nExamples:\n  gnomon run model.safetensors -i x.npy -o y.npy\n"
      "  gnomon run model.safetensors -i batch.safetensors --input-name x -m batch.safetensors --mask-name mask -o "
      "y.safetensors\n"
      "  gnomon run weights.safetensors --config \"d128 h4 l3 f512 bi\" -i x.npy -o y.npy --effort estimate");
  command->callback([arguments, &session] { run(*arguments, session); });
}

}  // namespace gnomon::cli
