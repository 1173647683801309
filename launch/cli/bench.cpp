#include "launch/cli/bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/core.h>

#include "launch/base/exit_codes.hpp"
#include "launch/base/json_text.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_output.hpp"
#include "launch/cli/bench_cases.hpp"
#include "launch/cli/bench_report.hpp"
#include "launch/load/gpu_check.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/model_summary.hpp"
#include "launch/load/stored_types.hpp"
#include "launch/placement/memory_plan.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"

namespace paceline {

namespace {

constexpr const char* kBenchCommand = "bench";

/// Usage errors are the command line's, found before anything slow happens.
std::vector<BenchCase> cases_of(const BenchOptions& options) {
    std::vector<BenchCase> cases;
    const auto add = [&cases](BenchKind kind, int count, int depth) {
        if (count > 0) cases.push_back({kind, count, depth});
    };
    for (const int depth : parse_int_list(options.depths)) {
        for (const int count : parse_int_list(options.prompts))
            add(BenchKind::Prompt, count, depth);
        for (const int count : parse_int_list(options.generated))
            add(BenchKind::Generate, count, depth);
        if (options.batches.empty()) continue;
        for (const int rows : parse_int_list(options.batches)) {
            add(BenchKind::Batch, rows, depth);
            if (options.gemm) add(BenchKind::Gemm, rows, depth);
        }
    }
    return cases;
}

/// Prints rows as they come, and nothing before the first; JSON as one array that is closed at the
/// end.
class Printer {
public:
    explicit Printer(const std::string& format) : format_{format} {}
    /// Errors: standard output cannot be written, which ends the measuring.
    [[nodiscard]] Status print(const BenchRow& row) {
        if (rows_++ == 0) begin();
        if (format_ == "md") std::puts(to_markdown(row).c_str());
        if (format_ == "csv") std::puts(to_csv(row).c_str());
        if (format_ == "json") {
            std::printf("%s\n%s", rows_ == 1 ? "" : ",", json_text(to_json(row), 2).c_str());
        }
        return flush_stdout();
    }
    void finish() {
        if (format_ == "json") std::puts("\n]");
    }

private:
    void begin() const {
        if (format_ == "md") std::puts(markdown_header().c_str());
        if (format_ == "csv") std::puts(csv_header().c_str());
        if (format_ == "json") std::fputs("[", stdout);
    }

    std::string format_;
    int rows_ = 0;  // printed
};

/// What stays the same from row to row.
BenchRow row_template(const ModelFile& file, const ModelOptions& model) {
    const InspectSummary summary = summarize(file, Grouping::ByKind);
    BenchRow row;
    row.model_file = visible(file.path(), kLineShownBytesMax);
    row.model_name = visible(file.config().name.empty() ? file.path() : file.config().name);
    if (is_synthetic(file)) row.model_name += " (synthetic weights)";
    if (const MergedLora* lora = file.lora()) row.model_name += " + " + visible(lora->path);
    row.model_parameters = summary.parameters;
    const Device device = device_of(model);
    row.kv_dtype = name(kv_type(model, device));
    if (device.gpu) {
        row.backend = device.exact ? "CUDA" : "CUDA, exact off";
        row.gpu = read_gpus().names[static_cast<std::size_t>(*device.gpu)];
    }
    return row;
}

Status run_cases(Backend& backend,
                 const std::vector<BenchCase>& cases,
                 int repetitions,
                 BenchRow row,
                 Printer& printer) {
    row.model_bytes = backend.memory_use().weight_bytes;
    if (const auto* cpu = dynamic_cast<const CpuBackend*>(&backend)) row.isa = name(cpu->isa());
    BenchRunner runner{backend};
    for (const BenchCase& bench : cases) {
        row.bench = bench;
        row.samples_ns = runner.run(bench, repetitions);
        if (Status s = printer.print(row); !s.ok()) return s;
    }
    return {};
}

Status check_positions(const std::vector<BenchCase>& cases, int context_length) {
    for (const BenchCase& bench : cases) {
        if (bench.positions() <= context_length) continue;
        return Error{Errc::BadArgument,
                     fmt::format("{} needs {} positions, the model's context has {}", name(bench),
                                 bench.positions(), context_length)};
    }
    return {};
}

/// Of every dtype, before the first is loaded.
Status check_room(const BenchOptions& options, const ModelFile& file, int slots) {
    const Device device = device_of(options.model);
    const std::optional<AvailableMemory> room = read_available_memory();
    for (const std::string& dtype : split_list(options.dtypes)) {
        ModelOptions one = options.model;
        one.dtype = dtype;
        const CpuOptions cpu = cpu_options(one, ThreadPlan{}, slots, device);
        if (Status s = check_memory({plan_backend(file, cpu, "dtype " + dtype, device)}, room); !s)
            return s;
    }
    return {};
}

Status sweep(const BenchOptions& options,
             const ModelFile& checked,
             const Machine& machine,
             const Environment& environment,
             const std::vector<BenchCase>& cases) {
    int slots = 0;
    for (const BenchCase& bench : cases) slots = std::max(slots, bench.positions());
    if (Status s = check_room(options, checked, slots); !s) return s;
    const std::vector<int> threads = options.threads.empty()
                                         ? std::vector{machine.default_threads()}
                                         : parse_int_list(options.threads);
    BenchRow row = row_template(checked, options.model);
    Printer printer{options.format};
    for (const std::string& dtype : split_list(options.dtypes)) {
        ModelOptions one = options.model;
        one.dtype = dtype;
        // Opened for each dtype: a packed copy is one dtype's.
        Result<ModelFile> opened = open_model_file(one, environment);
        if (!opened) return opened.error();
        take_packed_copy(opened.value(), one, environment, {.bars = bars_on(environment)});
        const ModelFile& file = opened.value();
        print_rounded_types(kBenchCommand, file, one);
        for (const int count : threads) {
            const ThreadPlan plan = plan_threads(machine, count);
            const Device device = device_of(one);
            const int given = options.threads.empty() ? 0 : count;
            if (const std::string warning = threads_warning(given, device); !warning.empty())
                std::fprintf(stderr, "paceline bench: %s\n", warning.c_str());
            const auto begun = std::chrono::steady_clock::now();
            Result<std::unique_ptr<Backend>> backend = load_backend(
                file, cpu_options(one, plan, slots, device), device, bars_on(environment));
            if (!backend) return backend.error();
            const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begun;
            row.load_ns = static_cast<std::uint64_t>(taken.count());
            row.dtype = dtype_in_memory(file, dtype, device);
            row.threads = plan.threads;
            Status measured = run_cases(*backend.value(), cases, options.repetitions, row, printer);
            if (!measured.ok()) return measured;
        }
    }
    printer.finish();
    return {};
}

}  // namespace

Command add_bench(Command& app, BenchOptions& options) {
    Command command =
        app.add_command(kBenchCommand, "Measure prefill, decoding and batches of rows");
    add_model_file_option(command, options.model);
    add_lora_option(command, options.model);
    add_random_options(command, options.model);
    add_device_option(command, options.model);
    add_exact_option(command, options.model);
    const auto add = [&command](const char* names, std::string& value, const char* text,
                                OptionCheck check) {
        return command.add_option(names, value, text, std::move(check));
    };
    add("-t,--threads", options.threads,
        "threads, e.g. 1,2 (default: the physical cores that may be used)",
        whole_number_list(1, 1024));
    add("-p,--n-prompt", options.prompts, "tokens of a prompt, 0 is none", whole_number_list(0));
    add("-n,--n-gen", options.generated, "tokens decoded one by one, 0 is none",
        whole_number_list(0));
    add("-d,--n-depth", options.depths, "tokens in the context before", whole_number_list(0));
    add("-b,--batches", options.batches,
        "rows of batches with logits for every row, e.g. 1,2,4,8,16,32",
        whole_number_list(1, 4096));
    command.add_flag("--gemm", options.gemm, "for each batch, also its matrix products alone");
    add("--dtype", options.dtypes, "weights in memory", list_of(dtype_names()));
    add_cache_option(command, options.model);
    add("--kv-dtype", options.model.kv_dtype, "keys and values in memory",
        one_of(kv_dtype_names()));
    add("--isa", options.model.isa, "instruction set of the kernels", one_of(isa_names()));
    command.add_option("-r,--repetitions", options.repetitions,
                       "timed runs of each, after one that is not", whole_number(1, 10000));
    add("-o,--output", options.format, "output", one_of({"md", "csv", "json"}));
    command.footer(
        "Rows: pp512 a prompt of 512 tokens; tg128 128 tokens decoded; b8 a batch of 8 rows with "
        "logits\n"
        "for each; gemm8 its matrix products alone; '@ d512' after a context of 512 tokens.\n"
        "Examples:\n  paceline bench -t 1,2 -p 512 -n 128 -d 0,512 -b 1,2,4,8,16,32 --dtype "
        "auto,int8,bf16\n  paceline bench --random llama-8b --device cuda:0 -b 1,8,16");
    return command;
}

int run_bench(const BenchOptions& given, const Environment& environment) {
    BenchOptions options = given;
    const std::vector<BenchCase> cases = cases_of(options);
    // What run has -c for: a model may have another rope for longer texts.
    for (const BenchCase& bench : cases)
        options.model.context = std::max(options.model.context, bench.positions());
    if (cases.empty())
        return report_usage(kBenchCommand, "nothing to measure: -p, -n and -b are all empty or 0");
    const Device device = device_of(options.model);
    if (device.gpu && options.gemm)
        return report_usage(kBenchCommand, "--gemm times a CPU's matrix products, not a GPU's");
    if (Status s = check_device(device); !s) return report_usage(kBenchCommand, s.error().what);
    Result<ModelFile> model = open_model_file(options.model, environment);
    if (!model) return report(kBenchCommand, model.error());
    Status fits = check_positions(cases, model.value().config().context_length);
    if (!fits.ok()) return report_usage(kBenchCommand, fits.error().what);
    Result<Machine> machine = read_machine();
    if (!machine) return report_failure(kBenchCommand, machine.error());
    Status measured = sweep(options, model.value(), machine.value(), environment, cases);
    return measured.ok() ? kExitOk : report_failure(kBenchCommand, measured.error());
}

}  // namespace paceline
