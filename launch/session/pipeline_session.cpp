#include "launch/session/pipeline_session.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fmt/core.h>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/decoding/request_checks.hpp"
#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"
#include "launch/placement/kv_room.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/session/loop_thread.hpp"
#include "launch/session/pipeline_start.hpp"
#include "model/kv_layout.hpp"
#include "runtime/loop/stage_loop.hpp"
#include "runtime/observe/trace_file.hpp"

namespace paceline {

namespace {

using Clock = std::chrono::steady_clock;

/// The most memory a living process has had, from the kernel; 0 if it cannot be read.
std::uint64_t peak_bytes_of(pid_t pid) {
    std::ifstream status{fmt::format("/proc/{}/status", pid)};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
    }
    return 0;
}

using Counts = std::array<std::uint64_t, kCounters>;

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
          table_{placement_table(plan_.placement, supervisor_->pids(), plan_.needs) +
                 kv_room_text(plan_.text_slots, plan_.context, plan_.needs) + plan_.transports} {
        loop_->add(kConductor, conductor_);
        reset_stats();
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() = default;

    void serve() {
        thread_.serve(*loop_, [this](const Status& ended) {
            {
                const std::lock_guard lock{door_};
                over_ = ended;
            }
            changed_.notify_all();
            if (const auto told = std::exchange(on_over_, nullptr)) told(ended);
        });
    }

    /// Ends loop and stages; all members but this one may be called afterwards. From any thread but
    /// the loop's.
    void shut_down() {
        thread_.post([this] {
            const std::lock_guard lock{door_};
            if (!over_) conductor_.leave();
        });
        {
            std::unique_lock lock{door_};
            changed_.wait(lock, [this] { return over_.has_value(); });
        }
        const Status ended = thread_.call([this] { return supervisor_->shutdown(); });
        log_.info(ended.ok() ? "all stages have ended" : ended.error().what);
    }

    /// `told` is called on the loop's thread, which is this one, when the loop ends.
    void on_over(std::function<void(const Status&)> told) {
        std::optional<Status> ended;
        {
            const std::lock_guard lock{door_};
            ended = over_;
        }
        if (ended) return told(*ended);
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
            tally_.add(stats.verdicts);
            if (on_end) on_end(stats, status);  // may submit another one
            closed_one();
        };
        opened_one();  // before: the order may end at once
        Result<RequestId> taken = conductor_.submit(std::move(order));
        if (!taken) closed_one();
        return taken;
    }

    /// Until no order is open.
    Status run() {
        PACE_CHECK(!thread_.is_here(), "the loop's thread would wait for itself");
        std::unique_lock lock{door_};
        changed_.wait(lock, [this] { return open_ == 0 || over_.has_value(); });
        return over_.value_or(Status{});
    }

    static void read_account(const TelemetrySnapshot& telemetry, PipelineStats& stats) {
        const AccountFigures account = account_figures(telemetry);
        if (account.plain_token_us > 0.0) stats.plain_rate = 1e6 / account.plain_token_us;
        stats.speculation_gain = account.gain();
    }

    [[nodiscard]] PipelineStats stats() const {
        PipelineStats stats;
        stats.method = pipeline_.config.name;
        stats.seconds = seconds();
        stats.verdicts = tally_;
        stats.metrics = metrics_of(pipeline_.config);
        if (pipeline_.config.self_draft)
            stats.self_draft =
                self_draft_view(model_, pipeline_.config.self_draft->options.auto_off,
                                pipeline_.config.self_draft->short_list);
        if (pipeline_.config.draft &&
            (pipeline_.config.draft->searches() || pipeline_.config.draft->is_tapped()))
            stats.draft_skip = DraftSkipView{.layers = model_.layers};
        for (const PlacedProcess& process : plan_.placement.processes)
            stats.processes.push_back({.name = process.name});
        const auto hosted_segments = [&](const PlacedProcess& process) {
            return static_cast<std::uint64_t>(std::count_if(
                process.stages.begin(), process.stages.end(),
                [&](StageId id) { return plan_.placement.stage(id).role == StageRole::Segment; }));
        };
        for (const StageRecord& record : supervisor_->records()) {
            const Counts grown = growth_of(record);
            for (std::size_t i = 0; i < kCounters; ++i) stats.counters[i] += grown[i];
            // The newest incarnation of the first segment's process is the last one in this list.
            if (record.id == StageId{1}) read_account(record.telemetry.snapshot(), stats);
            if (stats.self_draft && record.id == StageId{1})
                stats.self_draft->gauges = record.telemetry.snapshot().gauges;
            if (stats.draft_skip &&
                record.id == plan_.placement.process_of(*plan_.placement.draft()).id())
                stats.draft_skip->gauges = record.telemetry.snapshot().gauges;
            const auto of = [&](Counter c) { return grown[static_cast<std::size_t>(c)]; };
            for (std::size_t p = 0; p < stats.processes.size(); ++p) {
                const PlacedProcess& process = plan_.placement.processes[p];
                if (process.id() != record.id) continue;
                stats.processes[p].busy += share(of(Counter::JobMicros));
                // A wait that began before run() counts when it ends.
                stats.processes[p].waiting +=
                    std::min(share(of(Counter::WaitMicros)), 1.0 - share(of(Counter::JobMicros)));
                if (record.id == StageId{1})
                    stats.target_forwards += of(counters::kBatches) / hosted_segments(process);
            }
        }
        return stats;
    }

    /// Every segment counts each row; one that was replaced counts again.
    [[nodiscard]] std::int32_t prefilled_rows() const {
        std::uint64_t rows = 0;
        for (const StageRecord& record : supervisor_->records())
            rows += growth_of(record)[static_cast<std::size_t>(counters::kPrefillRows)];
        return static_cast<std::int32_t>(rows /
                                         static_cast<std::uint64_t>(pipeline_.config.segments()));
    }

    void reset_stats() {
        tally_ = {};
        {
            const std::lock_guard lock{door_};
            seconds_ = 0.0;
            began_ = Clock::now();
        }
        before_.clear();
        for (const StageRecord& record : supervisor_->records())
            before_[{record.id, record.epoch}] = record.telemetry.snapshot().counters;
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
            found.push_back({process.name, process.stages, pids[i]});
        }
        return found;
    }

    [[nodiscard]] std::string trace_text() const {
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
    [[nodiscard]] const std::string& table() const { return table_; }
    [[nodiscard]] std::string parts() const { return parts_text(pipeline_, plan_.placement); }

private:
    void opened_one() {
        const std::lock_guard lock{door_};
        if (open_++ == 0) began_ = Clock::now();
    }
    void closed_one() {
        {
            const std::lock_guard lock{door_};
            if (--open_ > 0) return;
            const auto now = Clock::now();
            seconds_ += std::chrono::duration<double>(now - began_).count();
            began_ = now;
        }
        changed_.notify_all();
    }

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
    /// What an incarnation has counted since reset_stats().
    [[nodiscard]] Counts growth_of(const StageRecord& record) const {
        Counts counts = record.telemetry.snapshot().counters;
        const auto before = before_.find({record.id, record.epoch});
        if (before == before_.end()) return counts;
        for (std::size_t i = 0; i < kCounters; ++i)
            counts[i] -= std::min(counts[i], before->second[i]);
        return counts;
    }
    /// With an order open, since reset_stats().
    [[nodiscard]] double seconds() const {
        const std::lock_guard lock{door_};
        const auto now = open_ > 0 ? Clock::now() : began_;
        return seconds_ + std::chrono::duration<double>(now - began_).count();
    }
    [[nodiscard]] double share(std::uint64_t micros) const {
        const double all = seconds();
        return all > 0.0 ? std::min(1.0, static_cast<double>(micros) / 1e6 / all) : 0.0;
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
    std::string table_;
    VerdictTally tally_;                    // of the answers that have ended
    std::map<Incarnation, Counts> before_;  // at the last reset_stats()
    std::function<void(const Status&)> on_over_;

    mutable std::mutex door_;  // of what follows: run() waits on another thread
    std::condition_variable changed_;
    int open_ = 0;                // orders that have not ended
    double seconds_ = 0.0;        // with an order open, until began_
    Clock::time_point began_{};   // the open time that goes on, if an order is open
    std::optional<Status> over_;  // how the loop has ended
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
    if (options.output.table) std::fputs(impl->table().c_str(), stderr);
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
