#include "launch/placement/gpu_table.hpp"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <map>

#include "model/weights/message_text.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

using Cells = std::array<std::string, 10>;
constexpr std::size_t kFirstNumber = 5;  // columns from here to kLastNumber stand to the right
constexpr std::size_t kLastNumber = 8;

/// Columns as wide as their widest cell.
std::string aligned(const std::vector<Cells>& rows) {
    std::array<std::size_t, std::tuple_size_v<Cells>> widths{};
    for (const Cells& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const Cells& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const bool right = i >= kFirstNumber && i <= kLastNumber;
            line += right ? fmt::format("{:>{}}  ", row[i], widths[i])
                          : fmt::format("{:<{}}  ", row[i], widths[i]);
        }
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

std::string megabytes(std::uint64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6);
}

const MachineGpu& gpu_at(const GpuRequest& request, int index) {
    return request.machine.gpus[static_cast<std::size_t>(index)];
}

/// What all stages together leave of each GPU.
std::map<int, std::uint64_t> free_bytes(const GpuPlan& plan, const GpuRequest& request) {
    std::map<int, std::uint64_t> left;
    for (const int gpu : request.gpus) left[gpu] = room_of(gpu_at(request, gpu));
    for (std::size_t i = 0; i < plan.needs.size(); ++i) {
        const Device& device = plan.placement.stages[i].device;
        for (const auto& [gpu, share] : shares_by_gpu(device, plan.needs[i]))
            left[gpu] -= share.all();
    }
    return left;
}

/// One line; of a stage on several GPUs one for each of them.
std::vector<Cells> rows_of(const GpuPlan& plan,
                           const GpuRequest& request,
                           const PlacedStage& stage,
                           const std::map<int, std::uint64_t>& left) {
    const PlacedProcess& process = plan.placement.process_of(stage.id);
    const MemoryNeed& need = plan.needs[stage.id.value - std::size_t{1}];
    Cells row{stage.name, process.name, to_text(stage.device),          "-", "-", "-", "-",
              "-",        "-",          format_core_list(process.cores)};
    if (stage.role == StageRole::Segment)
        row[4] = fmt::format("{}..{}", stage.layers.first, stage.layers.last - 1);
    if (need.weight_bytes != 0) {
        row[5] = megabytes(need.weight_bytes);
        row[6] = megabytes(need.kv_bytes);
    }
    const std::vector<int> gpus = stage.device.gpus();
    const std::vector<GpuShare> shares = need.on_gpus();
    if (gpus.empty()) return {row};
    std::vector<Cells> rows;
    for (std::size_t g = 0; g < gpus.size(); ++g) {
        Cells& one = rows.emplace_back(g == 0 ? row : Cells{});
        one[2] = request.machine.gpu_name(gpus[g]);
        one[3] = gpu_at(request, gpus[g]).name;
        one[8] = megabytes(left.at(gpus[g]));
        if (g >= shares.size()) continue;
        if (need.weight_bytes != 0) {
            one[5] = megabytes(shares[g].weight_bytes);
            one[6] = megabytes(shares[g].kv_bytes);
        }
        one[7] = megabytes(shares[g].workspace_bytes);
    }
    return rows;
}

std::string unused_text(const GpuRequest& request, const std::map<int, std::uint64_t>& left) {
    std::string text;
    for (const auto& [gpu, bytes] : left) {
        if (bytes != room_of(gpu_at(request, gpu))) continue;
        text += (text.empty() ? "not used: " : ", ") + request.machine.gpu_name(gpu);
    }
    return text.empty() ? text : text + "\n";
}

}  // namespace

std::string gpu_table(const GpuPlan& plan,
                      const GpuRequest& request,
                      const std::string& transports) {
    const std::map<int, std::uint64_t> left = free_bytes(plan, request);
    std::vector<Cells> rows{{"stage", "process", "gpu", "name", "layers", "weights", "kv",
                             "workspace", "free", "cores"}};
    for (const PlacedStage& stage : plan.placement.stages) {
        for (const Cells& row : rows_of(plan, request, stage, left)) rows.push_back(row);
    }
    const GpuMachine& machine = request.machine;
    std::string text =
        fmt::format("{} on {}{}; MB, {} MB a GPU are the driver's\n",
                    plan.config.name.empty() ? "pipeline" : plan.config.name,
                    machine.name.empty() ? machine.source : machine.name,
                    machine.source == machine.name ? "" : " (" + machine.source + ")",
                    megabytes(kGpuContextBytes));
    return visible_lines(text + aligned(rows) + unused_text(request, left) + transports);
}

}  // namespace paceline
