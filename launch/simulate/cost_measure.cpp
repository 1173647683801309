#include "launch/simulate/cost_measure.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <memory>
#include <numeric>
#include <set>

#include "ipc/base/limits.hpp"
#include "launch/load/load_model.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/simulate/cost_names.hpp"
#include "launch/simulate/cost_neighbour.hpp"
#include "launch/simulate/cost_rows.hpp"
#include "model/cpu/cpu_backend.hpp"

namespace paceline {
namespace {

std::uint32_t number(int value) {
    return static_cast<std::uint32_t>(value);
}

Status check_list(const char* what, const std::vector<int>& values, int low, int high) {
    for (const int value : values) {
        if (value >= low && value <= high) continue;
        return Error{Errc::BadArgument,
                     fmt::format("{} to measure: {}, must be {} to {}", what, value, low, high)};
    }
    return {};
}

Status check(const CostPlan& plan, const ModelConfig& config, int cores) {
    if (plan.rows.empty()) return Error{Errc::BadArgument, "rows to measure: none"};
    if (Status s = check_list("rows", plan.rows, 1, static_cast<int>(kBatchRowsMax)); !s) return s;
    if (Status s = check_list("layers", plan.depths, 1, config.layers); !s) return s;
    if (Status s = check_list("threads", plan.threads, 1, cores); !s) return s;
    if (Status s = check_list("neighbours", plan.neighbours, 0, cores); !s) return s;
    if (Status s = check_list("contexts", plan.contexts, 0, 1 << 24); !s) return s;
    return check_list("a short list's tokens", plan.short_lists, 0, config.vocab_size);
}

/// One backend and what runs beside it: everything that can be measured with both as they are.
class Setting {
public:
    Setting(const ModelFile& file, const ModelOptions& model, const CostPlan& plan)
        : file_{file}, model_{model}, plan_{plan} {
        for (const int context : plan.contexts) {
            if (context + largest_batch() <= file.config().context_length)
                contexts_.push_back(context);
        }
        if (contexts_.empty()) contexts_.push_back(0);
    }

    /// Whether it fits beside as many copies as there are neighbours.
    [[nodiscard]] Status check_room(int neighbours) const {
        const MemoryNeed need = plan_backend(file_, sized_options(), "model");
        std::vector<MemoryNeed> needs{need};
        for (int i = 1; i <= neighbours; ++i) {
            needs.push_back(need);  // at most: it has fewer slots
            needs.back().name = fmt::format("neighbour {}", i);
        }
        return check_memory(needs, read_available_memory());
    }

    Status open(const std::vector<int>& cores, int usable_cores) {
        CpuOptions options = sized_options();
        options.threads = static_cast<int>(cores.size());
        options.cores = cores;
        options.usable_cores = usable_cores;
        Result<std::unique_ptr<CpuBackend>> made = make_cpu_backend(file_, options);
        if (!made) return made.error();
        backend_ = std::move(made).value();
        return {};
    }

    void measure(std::uint32_t threads, std::uint32_t busy, std::vector<CostRecord>& records) {
        CostRows bench{*backend_};
        const auto timed = [this](auto once) {
            return CostRows::median_of(plan_.samples, plan_.sample_seconds, once);
        };
        CostRecord record{.stage = "layers",
                          .fingerprint = cost_name(file_, model_.dtype, 0),
                          .threads = threads,
                          .neighbours = busy};
        for (const int context : contexts_) {
            for (const int layers : depths_of(plan_, file_.config().layers)) {
                for (const int rows : plan_.rows) {
                    record.layers = number(layers);
                    record.rows = number(rows);
                    record.context = number(context);
                    record.seconds =
                        timed([&] { return bench.layers_once(rows, context, layers); });
                    records.push_back(record);
                }
            }
        }
        int special = 0;
        for (const int tokens : plan_.short_lists) {
            const HeadId head = tokens == 0 ? HeadId::Final : static_cast<HeadId>(++special);
            for (const int rows : plan_.rows) {
                if (rows > static_cast<int>(kVerifyRowsMax)) continue;  // prefill has no heads
                records.push_back({.stage = "head",
                                   .fingerprint = cost_name(file_, model_.dtype, tokens),
                                   .rows = number(rows),
                                   .threads = threads,
                                   .neighbours = busy,
                                   .seconds = timed([&] { return bench.head_once(head, rows); })});
            }
        }
    }

private:
    [[nodiscard]] int largest_batch() const {
        return *std::max_element(plan_.rows.begin(), plan_.rows.end());
    }

    /// But for threads and cores.
    [[nodiscard]] CpuOptions sized_options() const {
        const int slots = *std::max_element(contexts_.begin(), contexts_.end()) + largest_batch();
        CpuOptions options = cpu_options(model_, ThreadPlan{}, slots);
        options.rows_max = std::max(largest_batch(), static_cast<int>(kVerifyRowsMax));
        for (const int tokens : plan_.short_lists) {
            if (tokens == 0) continue;
            HeadSpec head;
            head.tokens.resize(static_cast<std::size_t>(tokens));
            std::iota(head.tokens.begin(), head.tokens.end(), 0);
            options.heads.push_back(std::move(head));
        }
        return options;
    }

    const ModelFile& file_;
    const ModelOptions& model_;
    const CostPlan& plan_;
    std::vector<int> contexts_;
    std::unique_ptr<CpuBackend> backend_;
};

}  // namespace

std::vector<int> depths_of(const CostPlan& plan, int layers) {
    std::set<int> depths{plan.depths.begin(), plan.depths.end()};
    if (depths.empty()) {
        for (const int depth : {1, 2, 4, 8, layers / 4, layers / 2, layers}) {
            if (depth >= 1 && depth <= layers) depths.insert(depth);
        }
    }
    return {depths.begin(), depths.end()};
}

Result<std::vector<CostRecord>> measure_costs(const ModelFile& file,
                                              const ModelOptions& model,
                                              const CostPlan& plan,
                                              const Machine& machine,
                                              const std::function<void(const std::string&)>& told) {
    const std::vector<int> cores = machine.preferred_order();
    const auto all = static_cast<int>(cores.size());
    if (Status s = check(plan, file.config(), all); !s) return s.error();
    std::vector<int> threads = plan.threads;
    if (threads.empty()) threads = all > 1 ? std::vector{1, all} : std::vector{1};
    std::vector<CostRecord> records;
    for (const int count : threads) {
        for (const int busy : plan.neighbours) {
            if (count + busy > all) continue;  // a neighbour would take the measured cores' time
            told(fmt::format("{}: {} threads, {} neighbours", file.path(), count, busy));
            Setting setting{file, model, plan};
            if (Status s = setting.check_room(busy); !s) return s.error();
            std::vector<CostNeighbour> beside;
            for (int i = 0; i < busy; ++i) {
                Result<CostNeighbour> started =
                    CostNeighbour::start(file, model, cores[static_cast<std::size_t>(count + i)]);
                if (!started) return started.error();
                beside.push_back(std::move(started).value());
            }
            if (Status s = setting.open({cores.begin(), cores.begin() + count}, all); !s)
                return s.error();
            setting.measure(number(count), number(busy), records);
        }
    }
    return records;
}

}  // namespace paceline
