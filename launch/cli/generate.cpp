#include "launch/cli/generate.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fmt/core.h>
#include <system_error>
#include <utility>

#include "actors/decoding/answer_batches.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/interrupt.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/print.hpp"
#include "launch/base/report.hpp"
#include "launch/cli/generate_method.hpp"
#include "launch/cli/generate_progress.hpp"
#include "launch/cli/generate_shards.hpp"
#include "launch/load/gpu_check.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/prompt_sets.hpp"
#include "launch/load/stored_types.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/session/answer_compare.hpp"

namespace paceline {
namespace {

constexpr const char* kGenerateCommand = "generate";
constexpr int kJoiningRows = 32;  // rows of a batch that prompts of new requests may take

constexpr const char* kGenerateFooter =
    R"(Writes DIR/shard-00000.safetensors and so on, each when its last answer is there;
docs/generate.md says what is in it. Run the same command again after an interruption: shards that
are there are skipped (and refused if they were made of other prompts or with other options).

Answer number i = prompt * samples + sample is drawn with the seed SEED + i, so it is the answer of
  paceline run -p PROMPT -n N --seed SEED+i
with the same options, however many requests run at a time. Examples:
  paceline generate --prompts questions.jsonl -o answers/greedy
  paceline generate --prompts a.jsonl --prompts b.jsonl -o t1 --temp 1 --samples 4 --hidden 15,30)";

/// What all steps of a run need.
struct Job {
    OpenedModel model;
    std::vector<std::vector<TokenId>> prompts;
    BatchParams params;
    std::vector<AnswerTask> tasks;  // of all answers, also those that are there already
};

Result<std::vector<int>> hidden_layers(const std::string& word, int layers) {
    if (word.empty()) return std::vector<int>{};
    std::vector<int> chosen = parse_int_list(word);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    if (chosen.back() > layers) {
        return Error{Errc::BadArgument,
                     fmt::format("--hidden: {} is not a layer of the model; it has 1 to {}",
                                 chosen.back(), layers)};
    }
    return chosen;
}

Result<BatchParams> params_of(const GenerateOptions& options, const OpenedModel& model) {
    const ModelConfig& config = model.file.config();
    BatchParams params;
    const Result<SamplingOptions> drawn = with_generation_config(options.sampling, model.file);
    if (!drawn) return drawn.error();
    Result<SamplingParams> sampling = sampling_params(drawn.value(), config.vocab_size);
    if (!sampling) return sampling.error();
    Result<std::vector<int>> hidden = hidden_layers(options.hidden, config.layers);
    if (!hidden) return hidden.error();
    params.request.sampling = std::move(sampling).value();
    params.request.end_tokens = model.tokenizer.end_tokens();
    params.request.max_tokens = options.max_tokens;
    params.request.context = context_of(options.model, config);
    params.max_running = options.requests;
    params.batch_rows = options.requests + kJoiningRows;
    params.top = options.top;
    params.hidden = std::move(hidden).value();
    if (params.request.context > config.context_length) {
        return Error{Errc::BadArgument, fmt::format("-c: {} is more than the model's context of {}",
                                                    params.request.context, config.context_length)};
    }
    if (params.top > config.vocab_size) {
        return Error{Errc::BadArgument,
                     fmt::format("--top: the vocabulary has only {} tokens", config.vocab_size)};
    }
    return params;
}

Result<std::vector<Prompt>> read_all_prompts(const std::vector<std::string>& files) {
    std::vector<Prompt> all;
    for (const std::string& file : files) {
        Result<std::vector<Prompt>> prompts = read_prompts(file);
        if (!prompts) return prompts.error();
        for (Prompt& prompt : prompts.value()) all.push_back(std::move(prompt));
    }
    return all;
}

/// Skips prompts that leave no room for a token of answer, and says how many.
std::vector<AnswerTask> tasks_of(const std::vector<std::vector<TokenId>>& prompts,
                                 Position context,
                                 int samples) {
    std::vector<AnswerTask> tasks;
    std::size_t skipped = 0;
    for (std::size_t p = 0; p < prompts.size(); ++p) {
        const std::vector<TokenId>& tokens = prompts[p];
        if (tokens.empty() || tokens.size() >= static_cast<std::size_t>(context)) {
            ++skipped;
            continue;
        }
        for (int sample = 0; sample < samples; ++sample) {
            tasks.push_back({.index = static_cast<std::int64_t>(p) * samples + sample,
                             .prompt = static_cast<std::int32_t>(p),
                             .sample = sample,
                             .tokens = tokens});
        }
    }
    if (skipped > 0) {
        std::fprintf(stderr,
                     "paceline generate: %zu of %zu prompts are skipped, they do not fit into the "
                     "context of %d tokens\n",
                     skipped, prompts.size(), context);
    }
    return tasks;
}

Result<Job> job_of(const GenerateOptions& options, const Environment& environment) {
    Result<std::vector<Prompt>> prompts = read_all_prompts(options.prompts_files);
    if (!prompts) return prompts.error();
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return model.error();
    Result<BatchParams> params = params_of(options, model.value());
    if (!params) return params.error();
    Result<std::vector<std::vector<TokenId>>> encoded =
        encode_prompts(prompts.value(), model.value().file, model.value().tokenizer);
    if (!encoded) return encoded.error();
    Job job{.model = std::move(model).value(),
            .prompts = std::move(encoded).value(),
            .params = std::move(params).value(),
            .tasks = {}};
    job.tasks = tasks_of(job.prompts, job.params.request.context, options.samples);
    if (job.tasks.empty())
        return Error{Errc::BadArgument, "--prompts: none of the prompts fits into the context"};
    return job;
}

/// The shortest text that is this number again: 0.8, not 0.800000012.
std::string shortest(float number) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number);
    return {text.data(), end.ptr};
}

std::string comma_list(const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    return text;
}

/// Everything that the tokens and tensors of a shard depend on.
ShardLayout layout_of(const GenerateOptions& options, const Job& job) {
    const SamplingParams& sampling = job.params.request.sampling;
    const ModelConfig& config = job.model.file.config();
    std::string bias;
    for (const auto& [token, value] : sampling.logit_bias)
        bias += fmt::format("{}{}={}", (bias.empty() ? "" : " "), token, shortest(value));
    const Device device = device_of(options.model);
    ShardLayout layout;
    layout.folder = options.folder;
    layout.size = options.shard_size;
    layout.dim = config.dim;
    layout.top = job.params.top;
    layout.hidden = job.params.hidden;
    layout.metadata = {
        {"paceline.format", "answers-1"},
        {"paceline.target",
         print("%016llx", static_cast<unsigned long long>(job.model.file.fingerprint()))},
        {"vocab_size", std::to_string(config.vocab_size)},
        // A GPU sums in another order: its answers and a CPU's do not go into one folder.
        {"dtype", options.model.dtype + (device.gpu ? " on cuda" : "") +
                      (device.exact ? "" : ", exact off")},
        {"kv_dtype", std::string{name(kv_type(options.model, device))}},
        {"context", std::to_string(job.params.request.context)},
        {"max_tokens", std::to_string(job.params.request.max_tokens)},
        {"samples", std::to_string(options.samples)},
        {"shard_size", std::to_string(options.shard_size)},
        {"top", std::to_string(job.params.top)},
        {"hidden", comma_list(job.params.hidden)},
        {"seed", std::to_string(sampling.seed)},
        {"temperature", shortest(sampling.temperature)},
        {"top_k", std::to_string(sampling.top_k)},
        {"top_p", shortest(sampling.top_p)},
        {"min_p", shortest(sampling.min_p)},
        {"repetition_penalty", shortest(sampling.repetition_penalty)},
        {"presence_penalty", shortest(sampling.presence_penalty)},
        {"frequency_penalty", shortest(sampling.frequency_penalty)},
        {"penalty_window", std::to_string(sampling.penalty_window)},
        {"logit_bias", bias}};
    return layout;
}

Status make_folder(const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error) return {};
    return Error{Errc::BadArgument, "-o: " + folder + " cannot be made: " + error.message()};
}

Result<std::unique_ptr<Backend>> backend_of(const GenerateOptions& options,
                                            const Job& job,
                                            std::span<const AnswerTask> tasks,
                                            const Environment& environment) {
    const Device device = device_of(options.model);
    if (Status s = check_device(device); !s) return s.error();
    Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    const ThreadPlan plan = plan_threads(machine.value(), options.model.threads);
    CpuOptions cpu = cpu_options(options.model, plan, kv_slots_for(tasks, job.params), device);
    cpu.rows_max = job.params.batch_rows;
    if (Status s = check_memory({plan_backend(job.model.file, cpu, "model", device)},
                                read_available_memory());
        !s)
        return s.error();
    return load_backend(job.model.file, std::move(cpu), device, bars_on(environment));
}

void print_summary(const GenerateProgress& progress, std::size_t there, std::int64_t loops) {
    const double seconds = std::max(progress.seconds(), 1e-9);
    std::printf(
        "%lld answers (%zu were there), %lld tokens in %.1f s, %.1f tokens/s, with prompts "
        "%.1f rows/s, %lld answers repeat themselves\n",
        static_cast<long long>(progress.answers()), there,
        static_cast<long long>(progress.tokens()), seconds,
        static_cast<double>(progress.tokens()) / seconds,
        static_cast<double>(progress.rows()) / seconds, static_cast<long long>(loops));
}

Status generate(const GenerateOptions& options,
                const Job& job,
                const Environment& environment,
                CancelToken& cancel) {
    AnswerShards shards{layout_of(options, job), job.tasks};
    const Result<std::vector<AnswerTask>> missing = shards.missing();
    if (!missing) return missing.error();
    const std::vector<AnswerTask>& tasks = missing.value();
    std::int64_t loops = 0;
    GenerateProgress progress{static_cast<std::int64_t>(tasks.size()),
                              environment.stderr_is_terminal};
    const auto done = [&](TrainingSample answer) {
        progress.answer_done();
        loops += first_loop(answer.answer()).has_value() ? 1 : 0;
        return shards.add(std::move(answer));
    };
    GenerateMethod method{options, job.model.file, job.params, environment};
    const auto done_by_pipeline = [&](TrainingSample answer) {
        progress.batch_done(static_cast<int>(answer.answer().size()),
                            static_cast<int>(answer.tokens.size()));
        return done(std::move(answer));
    };
    const Result<std::span<const AnswerTask>> rest = method.run(
        tasks, done_by_pipeline, [&] { progress.start(); }, cancel);
    if (!rest) return rest.error();
    if (!rest.value().empty()) {
        Result<std::unique_ptr<Backend>> backend =
            backend_of(options, job, rest.value(), environment);
        if (!backend) return backend.error();
        if (rest.value().size() == tasks.size()) progress.start();
        AnswerBatches batches{*backend.value(), job.params};
        const auto on_batch = [&](int drawn, int rows) { progress.batch_done(drawn, rows); };
        if (Status s = batches.run(rest.value(), done, on_batch, cancel); !s) return s;
    }
    print_summary(progress, job.tasks.size() - tasks.size(), loops);
    return {};
}

void add_what(Command& command, GenerateOptions& options) {
    command
        .add_option("--prompts", options.prompts_files,
                    "prompts, a JSON object per line with \"prompt\", \"turns\", \"question\" or "
                    "\"text\"; may be repeated")
        .required()
        .repeated();
    command.add_option("-o,--output", options.folder, "folder of the shards").required();
    const auto number = [&command](const char* name, int& value, const char* text, int lowest,
                                   int highest) {
        command.add_option(name, value, text, whole_number(lowest, highest));
    };
    command.add_option("-n,--n-predict", options.max_tokens, "most tokens of each answer",
                       explain_low(whole_number(1, 1 << 20), kNoEndlessAnswer));
    number("--requests", options.requests, "answers made at the same time", 1, 512);
    number("--samples", options.samples, "answers to each prompt, each with its own seed", 1,
           1 << 20);
    number("--top", options.top,
           "keep so many of the target's likeliest next tokens after each row; 0: none", 0, 1024);
    number("--shard-size", options.shard_size,
           "answers in a file; those of an incomplete one are held in memory", 1, 1 << 24);
    command
        .add_option("--hidden", options.hidden,
                    "keep the residual after these layers, such as 15,20,30")
        .check(whole_number_list(1));
    command.add_option("--method", options.method,
                       "how to decode: auto (docs/generate.md), plain (in batches, in this "
                       "process), or one of paceline run --list-methods. The bytes are the same "
                       "(default: $PACELINE_METHOD, else auto)");
}

}  // namespace

Command add_generate(Command& app, GenerateOptions& options) {
    Command command = app.add_command(
        kGenerateCommand, "Answer many prompts, and keep the target's distributions, for training");
    add_model_options(command, options.model);
    add_device_option(command, options.model);
    add_exact_option(command, options.model);
    refuse_random_option(command);
    add_parts_option(command, options.model);
    add_what(command, options);
    add_sampling_options(command, options.sampling);
    add_generation_config_option(command, options.sampling);
    command.footer(kGenerateFooter);
    return command;
}

int run_generate(const GenerateOptions& given, const Environment& environment) {
    GenerateOptions options = given;
    if (options.method.empty()) {
        // The variable is of all commands: it asks for no method that cannot do what is asked here.
        const bool named = !environment.method.empty() && !needs_plain(options);
        options.method = named ? environment.method : kAutoMethod;
    }
    if (Status s = check_method(options); !s) return report(kGenerateCommand, s.error());
    Result<Job> job = job_of(options, environment);
    if (!job) return report(kGenerateCommand, job.error());
    if (const std::string warning =
            threads_warning(options.model.threads, device_of(options.model));
        !warning.empty())
        std::fprintf(stderr, "paceline generate: %s\n", warning.c_str());
    if (const std::string idle = idle_sampling_options(options.sampling); !idle.empty())
        std::fprintf(stderr, "paceline generate: %s\n", idle.c_str());
    if (const std::string keys = generation_config_remark(
            options.sampling, job.value().params.request.sampling, job.value().model.file);
        !keys.empty())
        std::fprintf(stderr, "paceline generate: %s\n", keys.c_str());
    print_rounded_types(kGenerateCommand, job.value().model.file, options.model);
    if (Status s = make_folder(options.folder); !s) return report(kGenerateCommand, s.error());
    CancelToken cancel;
    const Interrupt interrupt{cancel, std::chrono::milliseconds{0}};
    const Status status = generate(options, job.value(), environment, cancel);
    if (status) return kExitOk;
    if (status.error().code != Errc::Cancelled) return report(kGenerateCommand, status.error());
    std::fputs("paceline generate: stopped; run the same command again to go on\n", stderr);
    return interrupt.draining() ? kExitTerminated : kExitInterrupted;
}

}  // namespace paceline
