#include "launch/cli/convert.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fmt/core.h>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/base/exit_codes.hpp"
#include "launch/base/hub_cache.hpp"
#include "launch/base/interrupt.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/progress_bar.hpp"
#include "launch/base/report.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/model_summary.hpp"
#include "model/weights/convert.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {
namespace {

constexpr const char* kConvertCommand = "convert";
constexpr std::pair<const char*, StoredType> kTypes[] = {{"q8_0", StoredType::Q8_0},
                                                         {"q4_0", StoredType::Q4_0},
                                                         {"q4_1", StoredType::Q4_1},
                                                         {"bf16", StoredType::BF16}};

StoredType type_of(const std::string& word) {
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [&](const auto& type) { return word == type.first; });
    return found == std::end(kTypes) ? StoredType::Q8_0 : found->second;
}

/// What is wrong with the place of the output, before anything is read of the model.
Status check_output(const ConvertCommandOptions& options) {
    std::error_code ignored;
    const auto bad = [&](const char* what) {
        return Error{Errc::BadArgument,
                     "output " + visible(options.output, kLineShownBytesMax) + " " + what};
    };
    if (!options.output.ends_with(".gguf")) return bad("does not end in .gguf");
    if (std::filesystem::is_directory(options.output, ignored)) return bad("is a directory");
    if (!options.force && std::filesystem::exists(options.output, ignored))
        return bad("exists already; --force replaces it");
    return {};
}

/// The files that the model is read from must not be replaced by it.
Status check_apart(const ModelFile& model, const std::string& output) {
    const ModelFile::Contents& contents = model.contents();
    const auto is_output = [&](const MappedFile& file) {
        std::error_code ignored;
        const std::string part = UnfinishedFile::part_of(output);
        return std::filesystem::equivalent(file.path(), output, ignored) ||
               std::filesystem::equivalent(file.path(), part, ignored);
    };
    if (!is_output(contents.file) &&
        std::none_of(contents.shards.begin(), contents.shards.end(), is_output))
        return {};
    return Error{Errc::BadArgument, "output " + visible(output, kLineShownBytesMax) +
                                        " is a file of the model itself; name another one"};
}

std::string tensors_text(const ConvertPlan& plan) {
    std::string text;
    for (const StoredType type : {StoredType::Q8_0, StoredType::Q4_0, StoredType::Q4_1,
                                  StoredType::BF16, StoredType::F16, StoredType::F32}) {
        const auto count =
            std::count_if(plan.tensors.begin(), plan.tensors.end(),
                          [&](const ConvertedTensor& tensor) { return tensor.head.type == type; });
        if (count > 0)
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, traits(type).name);
    }
    return text;
}

Status write_file(const ModelFile& model,
                  const ConvertPlan& plan,
                  const ConvertOptions& how,
                  const std::string& output) {
    Result<UnfinishedFile> out = UnfinishedFile::begin(output, UnfinishedFile::Beside::Refuse);
    if (!out) return out.error();
    if (Status s = out.value().reserve(plan.bytes); !s) return s;
    if (Status s = write_converted(model, plan, how, out.value()); !s) return s;
    if (Status s = out.value().sync(); !s) return s;
    return out.value().keep();
}

Status convert(const ConvertCommandOptions& options,
               const Environment& environment,
               const CancelToken& cancel) {
    const auto begun = std::chrono::steady_clock::now();
    if (Status s = check_output(options); !s) return s;
    const ModelOptions named{.model = options.model};
    const Result<ModelFile> model = open_model_file(named, environment);
    if (!model) return model.error();
    if (Status s = check_apart(model.value(), options.output); !s) return s;
    const Result<Machine> machine = read_machine();
    if (!machine) return machine.error();

    ProgressBar bar{"converting weights", options.quiet ? Show::No : bars_on(environment)};
    ConvertOptions how;
    how.type = type_of(options.type);
    how.threads = options.threads != 0
                      ? options.threads
                      : std::max(1, static_cast<int>(machine.value().allowed.size()));
    // A snapshot's folder is called after its commit; the model has a name.
    const bool by_name = is_hub_name(options.model) && model.value().path() != options.model;
    if (by_name) how.name = options.model.substr(options.model.find('/') + 1);
    how.progress = [&bar](double done) { bar.update(done); };
    how.stopped = [&cancel] { return cancel.cancelled(); };
    const Result<ConvertPlan> plan = plan_conversion(model.value(), how);
    if (!plan) return plan.error();
    if (Status s = write_file(model.value(), plan.value(), how, options.output); !s) return s;
    bar.wipe();
    if (options.quiet) return {};
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    std::printf("%s: %s (%s), %s, %.1f s\n", visible(options.output, kLineShownBytesMax).c_str(),
                human_bytes(plan.value().bytes).c_str(),
                human_bytes(model.value().file_bytes()).c_str(), tensors_text(plan.value()).c_str(),
                taken.count());
    return {};
}

}  // namespace

Command add_convert(Command& app, ConvertCommandOptions& options) {
    Command command = app.add_command(kConvertCommand, "Write a model as one packed GGUF file");
    command
        .add_option(
            "model", options.model,
            "model: a Hugging Face folder, OWNER/NAME of one in the Hugging Face cache, or a "
            "GGUF file in F32, F16 or BF16")
        .required();
    command.add_option("output", options.output, "the file to write, OUT.gguf").required();
    std::vector<std::string> words;
    for (const auto& [word, type] : kTypes) words.emplace_back(word);
    command
        .add_option("--type", options.type,
                    "how matrices are stored: q8_0 is read as --dtype int8, q4_1 as q4 of the "
                    "model; q4_0 is "
                    "llama.cpp's oldest; under q4 embedding and head are q8_0")
        .check(one_of(words))
        .required();
    command
        .add_option("-t,--threads", options.threads,
                    "threads (default: the cores that this process may use)")
        .check(whole_number(1, 1024));
    command.add_flag("--force", options.force, "replace an output that exists");
    command.add_flag("-q,--quiet", options.quiet, "no progress, no summary");
    command.footer(
        "The file runs here and in llama.cpp. Example:\n"
        "  paceline convert ~/models/Qwen3-0.6B qwen3-0.6b.gguf --type q8_0");
    return command;
}

int run_convert(const ConvertCommandOptions& options, const Environment& environment) {
    CancelToken cancel;
    const Interrupt interrupt{cancel, std::chrono::milliseconds{0}};
    const Status done = convert(options, environment, cancel);
    if (done) return kExitOk;
    if (interrupt.draining()) return kExitTerminated;
    if (interrupt.raised()) return kExitInterrupted;
    return done.error().code == Errc::BadArgument ? report_usage(kConvertCommand, done.error().what)
                                                  : report_failure(kConvertCommand, done.error());
}

}  // namespace paceline
