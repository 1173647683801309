#include "launch/session/pipeline_session.hpp"

#include <cstdio>
#include <fmt/core.h>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "actors/decoding/request_checks.hpp"
#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"
#include "launch/placement/kv_room.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/session/loop_thread.hpp"
#include "launch/session/open_orders.hpp"
#include "launch/session/pipeline_start.hpp"
#include "launch/session/session_figures.hpp"
#include "model/kv_layout.hpp"
#include "runtime/loop/stage_loop.hpp"
#include "runtime/observe/trace_file.hpp"

namespace paceline {

namespace {

/// The most memory a living process has had, from the kernel; 0 if it cannot be read.
std::uint64_t peak_bytes_of(pid_t pid) {
    std::ifstream status{fmt::format("/proc/{}/status", pid)};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
    }
    return 0;
}

}  // namespace

class PipelineSession::Impl {
public:
    /// On the thread that `thread` is.
    Impl(LoopThread& thread,
         StartedPipeline started,
         PipelinePlan plan,
         const ResolvedConfig& pipeline,
         const ModelConfig& model,
         RunLog& log)
        : thread_{thread},
          supervisor_{std::move(started.supervisor)},
          conductor_{conductor_plan_of(plan, pipeline.config), model.vocab_size, plan.text_slots},
          loop_{std::make_unique<StageLoop>(
              std::move(started.wiring), *supervisor_, StageLoopOptions{})},
          plan_{std::move(plan)},
          pipeline_{pipeline},
          model_{model},
          hellos_{std::move(started.hellos)},
          log_{log},
          figures_{pipeline_.config, model_, plan_.placement} {
        loop_->add(kConductor, conductor_);
        reset_stats();
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() = default;

    void serve() {
        thread_.serve(*loop_, [this](const Status& ended) {
            orders_.end(ended);
            if (const auto told = std::exchange(on_over_, nullptr)) told(ended);
        });
    }

    /// Ends loop and stages; all members but this one may be called afterwards. From any thread but
    /// the loop's.
    void shut_down() {
        thread_.post([this] {
            if (!orders_.ended()) conductor_.leave();
        });
        orders_.wait_ended();
        const Status ended = thread_.call([this] { return supervisor_->shutdown(); });
        log_.info(ended.ok() ? "all stages have ended" : ended.error().what);
    }

    /// `told` is called on the loop's thread, which is this one, when the loop ends.
    void on_over(std::function<void(const Status&)> told) {
        if (const std::optional<Status> ended = orders_.ended()) return told(*ended);
        on_over_ = std::move(told);
    }

    [[nodiscard]] Status check(const Request& request) const {
        Request checked = request;
        if (checked.context == 0) checked.context = plan_.context;
        if (request.speculation.gamma > gamma_max()) {
            return request_out_of_range(
                "speculation.gamma", std::to_string(request.speculation.gamma),
                fmt::format("0 (as the pipeline) .. {}, its own", gamma_max()));
        }
        return validate(checked, model_.vocab_size,
                        plan_.text_slots / kKvPageSlots * kKvPageSlots);  // caches have whole pages
    }

    Result<RequestId> submit(AnswerOrder order) {
        const auto on_end = std::exchange(order.on_end, nullptr);
        order.on_end = [this, on_end](const AnswerStats& stats, const Status& status) {
            figures_.add(stats.verdicts);
            if (on_end) on_end(stats, status);  // may submit another one
            orders_.closed();
        };
        orders_.opened();
        Result<RequestId> taken = conductor_.submit(std::move(order));
        if (!taken) orders_.closed();
        return taken;
    }

    /// Until no order is open.
    Status run() {
        PACE_CHECK(!thread_.is_here(), "the loop's thread would wait for itself");
        return orders_.wait_closed();
    }

    [[nodiscard]] PipelineStats stats() const {
        supervisor_->refresh_records();
        return figures_.stats(supervisor_->records(), orders_.seconds());
    }
    [[nodiscard]] std::int32_t prefilled_rows() const {
        return figures_.prefilled_rows(supervisor_->records());
    }
    void reset_stats() {
        supervisor_->refresh_records();
        figures_.reset(supervisor_->records());
        orders_.restart_clock();
    }

    [[nodiscard]] PipelineUsage usage() const {
        return usage_of(supervisor_->records(), plan_.placement, plan_.text_slots);
    }

    [[nodiscard]] GeneratorTraits traits() const {
        GeneratorTraits traits{.method = pipeline_.config.name,
                               .equality_class = {},
                               .threads = 0,
                               .memory = {},
                               .peak_bytes = 0};
        for (const PlacedProcess& process : plan_.placement.processes)
            traits.threads += process.threads;
        for (const control::Hello& hello : hellos_) {
            if (traits.equality_class.empty()) traits.equality_class = hello.equality_class;
            traits.memory.weight_bytes += hello.weight_bytes;
            traits.memory.kv_bytes += hello.kv_bytes;
            traits.memory.workspace_bytes += hello.workspace_bytes;
            traits.memory.pinned_bytes += hello.pinned_bytes;
        }
        for (const pid_t pid : supervisor_->pids()) {
            if (pid > 0) traits.peak_bytes += peak_bytes_of(pid);
        }
        return traits;
    }

    [[nodiscard]] std::vector<SessionProcess> stages() const {
        const std::vector<pid_t> pids = supervisor_->pids();
        std::vector<SessionProcess> found;
        for (std::size_t i = 0; i < plan_.placement.processes.size(); ++i) {
            const PlacedProcess& process = plan_.placement.processes[i];
            const bool is_up = process.machine == 0
                                   ? pids[i] > 0
                                   : supervisor_->health_of(process.id()) == StageHealth::Up;
            found.push_back({process.name, process.stages, pids[i], is_up});
        }
        return found;
    }

    [[nodiscard]] std::string trace_text() const {
        supervisor_->refresh_records();
        std::vector<ProcessTrace> traces;
        for (const StageRecord& record : supervisor_->records()) {
            traces.push_back({.name = record.name,
                              .stage = record.id,
                              .epoch = record.epoch,
                              .events = record.telemetry.trace(),
                              .recorded = record.telemetry.traced()});
        }
        return trace_file_text(traces);
    }

    [[nodiscard]] ConductorActor& conductor() { return conductor_; }
    [[nodiscard]] Position context() const { return plan_.context; }
    [[nodiscard]] int gamma_max() const { return paceline::gamma_max(pipeline_.config); }
    [[nodiscard]] int pin_error() const { return supervisor_->pin_error(); }
    [[nodiscard]] std::string table() const {
        return placement_table(plan_.placement, supervisor_->pids(), plan_.needs) +
               kv_room_text(plan_.text_slots, plan_.context, plan_.needs) + plan_.transports;
    }
    [[nodiscard]] std::string parts() const { return parts_text(pipeline_, plan_.placement); }

private:
    /// While prompts are processed no verdict comes: their rows are the progress.
    [[nodiscard]] ConductorPlan conductor_plan_of(const PipelinePlan& pipeline,
                                                  const PipelineConfig& config) const {
        ConductorPlan plan = conductor_plan(pipeline.placement, config.supervision);
        plan.acceptance = config.acceptance;
        plan.context = pipeline.context;
        plan.rows_done = [this] {
            std::uint64_t rows = 0;
            for (const StageRecord& record : supervisor_->records())
                rows += record.telemetry.snapshot().counter(counters::kPrefillRows);
            return rows;
        };
        return plan;
    }

    LoopThread& thread_;
    std::unique_ptr<Supervisor> supervisor_;  // before the loop, which borrows it
    ConductorActor conductor_;
    std::unique_ptr<StageLoop> loop_;
    PipelinePlan plan_;
    ResolvedConfig pipeline_;
    ModelConfig model_;
    std::vector<control::Hello> hellos_;  // in the order of the processes
    RunLog& log_;
    SessionFigures figures_;
    OpenOrders orders_;
    std::function<void(const Status&)> on_over_;  // the loop's
};

Result<std::unique_ptr<PipelineSession>> PipelineSession::open(const ModelFile& file,
                                                               const ModelOptions& model,
                                                               const ResolvedConfig& pipeline,
                                                               const SessionOptions& options) {
    Result<PipelinePlan> plan =
        plan_pipeline(file, model, pipeline,
                      {.contexts = options.requests, .bytes = options.kv_memory}, options.cluster);
    if (!plan) return plan.error();
    if (options.output.remarks) {
        const auto cores = static_cast<int>(usable_cores(plan.value().machine, model).size());
        std::fputs(too_few_cores_text(pipeline.config, plan.value().placement, cores).c_str(),
                   stderr);
        std::fputs(plan.value().rounded.c_str(), stderr);
    }
    auto thread = std::make_unique<LoopThread>();
    Result<std::unique_ptr<Impl>> made = thread->call([&]() -> Result<std::unique_ptr<Impl>> {
        Result<StartedPipeline> started =
            start_pipeline(plan.value(), file, model, pipeline, *options.log, options.trace,
                           options.output.bars, options.cluster);
        if (!started) return started.error();
        return std::make_unique<Impl>(*thread, std::move(started).value(), std::move(plan).value(),
                                      pipeline, file.config(), *options.log);
    });
    if (!made) return made.error();
    std::unique_ptr<Impl> impl = std::move(made).value();
    if (options.output.remarks) std::fputs(unpinned_text(impl->pin_error()).c_str(), stderr);
    if (options.output.table)
        std::fputs(thread->call([&] { return impl->table(); }).c_str(), stderr);
    if (options.output.remarks) std::fputs(impl->parts().c_str(), stderr);
    impl->serve();
    return std::unique_ptr<PipelineSession>{
        new PipelineSession{std::move(thread), std::move(impl)}};
}

PipelineSession::PipelineSession(std::unique_ptr<LoopThread> thread, std::unique_ptr<Impl> impl)
    : thread_{std::move(thread)}, impl_{std::move(impl)} {}

PipelineSession::~PipelineSession() {
    end();
    thread_.reset();  // executes what was posted
}

void PipelineSession::end() {
    if (!std::exchange(ended_, true)) impl_->shut_down();
}

void PipelineSession::call(const std::function<void()>& what) {
    thread_->call([&] { what(); });
}
void PipelineSession::post(std::function<void()> what) {
    thread_->post(std::move(what));
}
void PipelineSession::call_every(Micros period, std::function<void()> what) {
    call([&] { impl_->conductor().call_every(period, std::move(what)); });
}
void PipelineSession::on_over(std::function<void(const Status& ended)> told) {
    call([&] { impl_->on_over(std::move(told)); });
}
Status PipelineSession::check(const Request& request) const {
    return impl_->check(request);
}
Result<RequestId> PipelineSession::submit(AnswerOrder order) {
    return thread_->call([&] { return impl_->submit(std::move(order)); });
}
void PipelineSession::cancel(RequestId request) {
    thread_->call([&] { impl_->conductor().cancel(request); });
}
Status PipelineSession::run() {
    return impl_->run();
}
void PipelineSession::close(RequestId request) {
    thread_->call([&] { impl_->conductor().close(request); });
}
Position PipelineSession::context() const {
    return impl_->context();
}
int PipelineSession::gamma_max() const {
    return impl_->gamma_max();
}
GeneratorTraits PipelineSession::traits() const {
    return thread_->call([&] { return impl_->traits(); });
}
PipelineStats PipelineSession::stats() const {
    return thread_->call([&] { return impl_->stats(); });
}
void PipelineSession::reset_stats() {
    thread_->call([&] { impl_->reset_stats(); });
}
PipelineUsage PipelineSession::usage() const {
    return thread_->call([&] { return impl_->usage(); });
}
std::int32_t PipelineSession::prefilled_rows() const {
    return thread_->call([&] { return impl_->prefilled_rows(); });
}
std::vector<SessionProcess> PipelineSession::stages() const {
    return thread_->call([&] { return impl_->stages(); });
}
std::vector<LostStage> PipelineSession::lost_stages() const {
    return thread_->call([&] { return impl_->conductor().lost_stages(); });
}
std::string PipelineSession::trace_text() const {
    return thread_->call([&] { return impl_->trace_text(); });
}

}  // namespace paceline
