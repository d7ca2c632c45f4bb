#include "cuda/compiler.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "core/error.hpp"
#include "core/fingerprint.hpp"
#include "cuda/nvrtc.hpp"

namespace gnomon::cuda {
namespace {

void check_nvrtc(int result, const char* call) {
  if (result != 0) throw_internal("{} failed: {}", call, nvrtc().error_string(result));
}

struct Program {
  NvrtcProgram* handle = nullptr;
  ~Program() {
    if (handle) nvrtc().destroy(&handle);
  }
  std::string log() const {
    std::size_t size = 0;
    if (nvrtc().log_size(handle, &size) != 0 || size <= 1) return {};
    std::string text(size, '\0');
    nvrtc().log(handle, text.data());
    text.resize(std::strlen(text.c_str()));
    return text;
  }
  std::string image(bool portable) const {
    std::size_t size = 0;
    check_nvrtc(portable ? nvrtc().ptx_size(handle, &size) : nvrtc().cubin_size(handle, &size), "nvrtcGetCUBINSize");
    std::string bytes(size, '\0');
    check_nvrtc(portable ? nvrtc().ptx(handle, bytes.data()) : nvrtc().cubin(handle, bytes.data()), "nvrtcGetCUBIN");
    return bytes;
  }
};

// A device newer than the compiler: PTX of the newest architecture that it knows, which the driver translates.
Architecture known_to_compiler(Architecture a) {
  const int wanted = a.major * 10 + a.minor;
  if (wanted <= nvrtc().newest_arch) return a;
  return {nvrtc().newest_arch / 10, nvrtc().newest_arch % 10, false, true};
}

std::vector<std::string> options_for(const KernelSource& source, const Architecture& architecture) {
  std::vector<std::string> options = {"--gpu-architecture=" + known_to_compiler(architecture).name(), "--std=c++17"};
  if (!known_to_compiler(architecture).portable) options.push_back("--ptxas-options=-v");  // the resource report
  for (const std::string& define : source.defines) options.push_back("--define-macro=" + define);
  return options;
}

}  // namespace

std::string KernelSource::to_string() const {
  std::string text = file + ": " + expression;
  for (const std::string& define : defines) text += " " + define;
  return text;
}

Compiler::Compiler(std::filesystem::path cache, std::span<const SourceFile> sources)
    : cache_(std::move(cache)), sources_(sources) {}

std::string Compiler::key(const KernelSource& source, const Architecture& architecture) const {
  std::string text = KernelCache::kFormat + nvrtc().version_text + "\n" + source.to_string() + "\n";
  for (const std::string& option : options_for(source, architecture)) text += option + "\n";
  text += with_includes(sources_, source.file);
  return fmt::format("{:016x}{:016x}", hash_bytes(text.data(), text.size(), 1),
                     hash_bytes(text.data(), text.size(), 2));
}

std::shared_ptr<const CompiledKernel> Compiler::get(const KernelSource& source, const Architecture& architecture) {
  const std::string name = key(source, architecture);
  std::promise<Shared> promise;
  std::shared_future<Shared> known;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kernels_.find(name); found != kernels_.end())
      known = found->second;
    else
      kernels_.emplace(name, promise.get_future().share());
  }
  if (known.valid()) return known.get();
  try {
    Shared kernel = make(name, source, architecture);
    promise.set_value(kernel);
    return kernel;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    kernels_.erase(name);  // the next one tries again
    throw;
  }
}

Compiler::Shared Compiler::make(const std::string& name, const KernelSource& source, const Architecture& architecture) {
  if (auto kernel = cache_.read(name)) return std::make_shared<const CompiledKernel>(std::move(*kernel));
  const auto kernel = std::make_shared<const CompiledKernel>(compile(source, architecture));
  ++compilations_;
  cache_.write(name, *kernel);
  return kernel;
}

Compiler::~Compiler() {
  {
    const std::lock_guard lock(mutex_);
    jobs_.clear();
  }
  for (Helper& helper : helpers_) helper.thread.request_stop();
}

void Compiler::ahead(std::vector<KernelSource> sources, const Architecture& architecture) {
  // Twice as many threads are no faster: kernels are parsed one at a time, whoever asks.
  const std::size_t most = std::max(1u, std::thread::hardware_concurrency() / 2);
  const std::lock_guard lock(mutex_);
  std::erase_if(helpers_, [](const Helper& helper) { return helper.ended->load(); });
  for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
    if (announced_.insert(source->to_string() + architecture.name()).second)
      jobs_.push_front({std::move(*source), architecture});
  }
  helpers_.reserve(helpers_.size() + most);  // nothing below may throw while a thread has no place
  for (std::size_t wanted = std::min(working_ + jobs_.size(), most); working_ < wanted; ++working_) {
    Helper helper;
    try {
      helper.thread = std::jthread([this, ended = helper.ended](const std::stop_token& stop) {
        help(stop);
        *ended = true;
      });
    } catch (const std::system_error&) {  // no more threads here: who asks for a kernel compiles it
      return;
    }
    helpers_.push_back(std::move(helper));
  }
}

std::optional<Compiler::Job> Compiler::next_job() {
  const std::lock_guard lock(mutex_);
  if (jobs_.empty()) {
    --working_;
    return {};
  }
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

bool Compiler::begun(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return kernels_.contains(name);
}

void Compiler::help(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const std::optional<Job> job = next_job();
    if (!job) return;
    try {
      if (!begun(key(job->source, job->architecture))) get(job->source, job->architecture);
    } catch (const std::exception&) {  // who asks for it is told
    }
  }
}

CompiledKernel Compiler::compile(const KernelSource& source, const Architecture& architecture) const {
  std::vector<std::string> names, texts;
  std::vector<const char*> name_pointers, text_pointers;
  for (const SourceFile& file : sources_) {
    names.emplace_back(file.name);
    texts.emplace_back(file.text);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    name_pointers.push_back(names[i].c_str());
    text_pointers.push_back(texts[i].c_str());
  }
  const std::string main = "#include \"" + source.file + "\"\n";
  Program program;
  check_nvrtc(nvrtc().create(&program.handle, main.c_str(), "gnomon.cu", static_cast<int>(names.size()),
                             text_pointers.data(), name_pointers.data()),
              "nvrtcCreateProgram");
  check_nvrtc(nvrtc().add_name(program.handle, source.expression.c_str()), "nvrtcAddNameExpression");
  const std::vector<std::string> options = options_for(source, architecture);
  std::vector<const char*> option_pointers;
  for (const std::string& option : options) option_pointers.push_back(option.c_str());
  const int result = nvrtc().compile(program.handle, static_cast<int>(option_pointers.size()), option_pointers.data());
  if (result != 0) {
    throw_internal("{} does not compile for {} with NVRTC {} ({}):\n{}", source.to_string(), architecture.name(),
                   nvrtc().version_text, nvrtc().error_string(result), program.log());
  }
  CompiledKernel kernel;
  kernel.source = source.to_string();
  kernel.architecture = known_to_compiler(architecture).name();
  kernel.compiler = "NVRTC " + nvrtc().version_text;
  const char* symbol = nullptr;
  check_nvrtc(nvrtc().lowered_name(program.handle, source.expression.c_str(), &symbol), "nvrtcGetLoweredName");
  kernel.symbol = symbol;
  kernel.log = program.log();
  kernel.image = program.image(known_to_compiler(architecture).portable);
  return kernel;
}

}  // namespace gnomon::cuda
