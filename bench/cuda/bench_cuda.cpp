// paceline_cuda_bench: what an NVIDIA GPU does with batches of a shape, on synthetic weights.
//
//     paceline_cuda_bench --shape configs/shapes/llama-8b.toml --json 8b.json
//     paceline_cuda_bench --shape configs/shapes/llama-70b.toml --only costs --costs 70b.tsv
//     paceline_cuda_bench --upload MODEL.gguf --only upload
//
// Also built for the emulated device (paceline_cuda_bench_emulated), where it shows that it works
// and nothing else: those times mean nothing.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fmt/core.h>
#include <optional>
#include <stdexcept>

#include <CLI/CLI.hpp>

#include "model/kernels/cuda/blas.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"

#ifdef PACELINE_EMULATED_DEVICE
#include "tests/emulated/cuda/order.hpp"
#endif

#include "bench/cuda/card.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

const std::vector<std::string> kSections{"copy",    "kernels", "ladder", "blas",  "batches",
                                         "drawing", "groups",  "upload", "goals", "costs"};
constexpr const char* kQuery =
    "nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,"
    "temperature.gpu --format=csv,noheader -i ";

struct Arguments {
    Settings settings;
    std::string shape;
    std::string upload;
    std::string json;
    std::string costs;
    std::vector<std::string> only;

    [[nodiscard]] bool wants(const std::string& section) const {
        return only.empty() || std::find(only.begin(), only.end(), section) != only.end();
    }
};

std::string now() {
    const std::time_t time = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&time));
    return text;
}

std::string card(const Settings& settings) {
#ifdef PACELINE_EMULATED_DEVICE
    (void)settings;
    return "the emulated device: these times mean nothing";
#else
    const std::string line = first_line_of(kQuery + std::to_string(settings.device));
    return line.empty() ? "nvidia-smi says nothing" : line;
#endif
}

Status run_shape(const Arguments& arguments, const ModelFile& file, Report& report) {
    const Bench bench{file, arguments.settings, report};
    report.say("shape", file.path() + " (" + file.config().name + "), dtype " +
                            arguments.settings.dtype + ", keys and values " +
                            arguments.settings.kv);
    if (const Result<CudaOptions> options = cuda_options(bench); !options) return options.error();
    // Shares are of what a copy reaches in this very process, whether the copy itself was asked for
    // or not.
    const bool judges =
        arguments.wants("kernels") || arguments.wants("batches") || arguments.wants("goals");
    if (arguments.wants("copy") || judges) copy_section(bench);
    if (arguments.wants("kernels")) kernels_section(bench);
    if (arguments.wants("ladder")) ladder_section(bench);
    if (arguments.wants("blas")) {
        const std::string missing = cuda::blas_problem();
        if (missing.empty()) blas_section(bench);
        if (!missing.empty()) report.say("blas", "left out: " + missing);
    }
    if (arguments.wants("batches")) {
        if (Status measured = batches_section(bench); !measured) return measured;
    }
    if (arguments.wants("drawing")) drawing_section(bench);
    if (arguments.wants("groups") && arguments.settings.group > 1) {
        if (Status measured = groups_section(bench); !measured) return measured;
    }
    if (arguments.wants("goals")) goals_section(bench);
    if (arguments.wants("costs") && !arguments.costs.empty())
        return write_costs(bench, arguments.costs);
    return {};
}

/// Fills in what --bandwidth and --flops did not give.
void take_data_sheet(Settings& settings, const std::string& device, Report& report) {
    const DataSheet* sheet = data_sheet_of(device);
    report.say("data sheet", described(sheet));
    if (sheet != nullptr && settings.bytes_per_second == 0.0)
        settings.bytes_per_second = sheet->bytes_per_second;
    if (sheet != nullptr && settings.flops == 0.0) settings.flops = sheet->bf16_flops;
    if (settings.bytes_per_second > 0.0)
        report.figure("sheet.bytes_per_s", settings.bytes_per_second);
    if (settings.flops > 0.0) report.figure("sheet.flops", settings.flops);
}

Status run(const Arguments& arguments, const std::string& command) {
#ifdef PACELINE_EMULATED_DEVICE
    cuda::emulated::set_devices(arguments.settings.device + arguments.settings.group);
#endif
    Report report;
    report.say("command", command);
    report.say("date", now());
    report.say("card", card(arguments.settings));
    const cuda::DeviceInfo device = cuda::use_device(arguments.settings.device);
    report.say("device",
               fmt::format("{}, {} processors, {} of {} GB free", device.name, device.processors,
                           fixed(static_cast<double>(device.free_bytes) / 1e9, 1),
                           fixed(static_cast<double>(device.memory_bytes) / 1e9, 1)));
    Arguments known = arguments;
    take_data_sheet(known.settings, device.name, report);
    Status status;
    if (!arguments.shape.empty()) {
        const Result<ModelFile> file = open_random_model(arguments.shape);
        if (!file) return file.error();
        status = run_shape(known, file.value(), report);
    }
    if (status.ok() && !arguments.upload.empty() && arguments.wants("upload"))
        status = upload_section(arguments.settings, arguments.upload, report);
    report.say("card afterwards", card(arguments.settings));
    if (!arguments.json.empty()) {
        if (Status written = report.write_json(arguments.json); !written) return written;
    }
    return status.ok() ? report.verdict() : status;
}

int main_with(int argc, char** argv) {
    Arguments arguments;
    Settings& settings = arguments.settings;
    CLI::App app{"Times an NVIDIA GPU on synthetic weights of a shape."};
    app.add_option("--shape", arguments.shape, "a file such as configs/shapes/llama-8b.toml");
    app.add_option("--upload", arguments.upload, "a GGUF file whose weights are loaded, and timed");
    app.add_option("--only", arguments.only, "sections, separated by commas")
        ->delimiter(',')
        ->check(CLI::IsMember(kSections));
    app.add_option("--json", arguments.json, "write everything to FILE");
    app.add_option("--costs", arguments.costs, "write a cost table for paceline simulate to FILE");
    app.add_option("--device", settings.device)->capture_default_str();
    app.add_option("--group", settings.group, "devices that share a stage, from --device on")
        ->check(CLI::Range(1, 1 + cuda::kOthersMax))
        ->capture_default_str();
    app.add_option("--dtype", settings.dtype, "auto, f32, bf16, int8, q4")->capture_default_str();
    app.add_option("--kv", settings.kv, "f32, f16, bf16")->capture_default_str();
    app.add_option("--rows", settings.rows)
        ->delimiter(',')
        ->check(CLI::Range(1, cuda::kBatchRows))
        ->capture_default_str();
    app.add_option("--blas-rows", settings.blas_rows,
                   "rows of products: ladder, and beside cuBLAS's")
        ->delimiter(',')
        ->check(CLI::Range(1, cuda::kGemmRowsMax))
        ->capture_default_str();
    app.add_option("--contexts", settings.contexts)
        ->delimiter(',')
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
    app.add_option("--prefill", settings.prefill, "tokens; 0: none")->capture_default_str();
    app.add_option("--times", settings.times, "replays of a batch")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--bandwidth", settings.bytes_per_second,
                   "of the card's memory by its data sheet, bytes/s; default: by the card's name")
        ->check(CLI::PositiveNumber);
    app.add_option("--flops", settings.flops,
                   "of the card by its data sheet, dense bf16, 1/s; default: by the card's name")
        ->check(CLI::PositiveNumber);
    app.add_option("--spread", settings.spread_bytes, "bytes of weights that a kernel goes round")
        ->capture_default_str();
    app.add_option("--copy", settings.copy_bytes, "bytes that the yardstick copies")
        ->check(CLI::Range(std::size_t{16}, std::size_t{1} << 40U))
        ->capture_default_str();
    app.add_option("--seed", settings.seed)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    std::string command;
    for (int i = 0; i < argc; ++i) command += (i > 0 ? " " : "") + std::string{argv[i]};
    try {
        const Status status = run(arguments, command);
        if (!status) std::fprintf(stderr, "paceline_cuda_bench: %s\n", status.error().what.c_str());
        return status ? 0 : 1;
    } catch (const std::runtime_error& error) {  // no memory, a broken device
        std::fprintf(stderr, "paceline_cuda_bench: %s\n", error.what());
        return 1;
    }
}

}  // namespace
}  // namespace paceline::bench

int main(int argc, char** argv) {
    return paceline::bench::main_with(argc, argv);
}
