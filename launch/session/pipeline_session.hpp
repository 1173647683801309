// PipelineSession: a running pipeline of processes that answers any number of requests at a time.
//
//     auto session = PipelineSession::open(file, model, config, {.log = &log, .requests = 8});
//     session->submit(order); session->submit(order); ...   // order.request: see submit()
//     session->run();                                       // until all of them have ended
//     session->stats(), session->stages(), session->trace_text()
//
// Owns the stages, and the thread that runs their parent's loop from open() to the end, with open
// orders or without (loop_thread.hpp): a stage that is lost while nothing is asked is replaced
// before the next request. The callbacks of an order are called on that thread; they may submit,
// cancel, kill processes of stages(), and throw nothing; while one blocks, nothing is decoded. What
// stands above this class and keeps clients off the loop is service.hpp.
// Every answer ends by itself, by its callback, by cancelled(), or by a recovery that is given up.
// Threads: all from any, run() from any but the loop's. A call of another thread is executed by the
// loop's between two messages: cancel() returns when the Stops were sent.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "actors/conductor/conductor_actor.hpp"
#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/run_log.hpp"
#include "launch/load/used_parts.hpp"
#include "launch/session/generator.hpp"
#include "launch/session/pipeline_stats.hpp"
#include "launch/session/pipeline_usage.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

struct SessionOptions {
    RunLog* log = nullptr;  // never nullptr when it is used; must outlive the session
    bool trace = false;     // record events for trace_text()
    StartOutput output = {};
    Cluster* cluster = nullptr;  // the other machines; must outlive the session
    int requests = 1;            // that decode at once: the KV caches get room for so many contexts
    std::uint64_t kv_memory = 0;  // instead: bytes of the target's KV caches (KvSize); 0: no
};

/// A process of the pipeline as it lives now.
struct SessionProcess {
    std::string name;
    std::vector<StageId> stages;  // hosted in it
    pid_t pid = 0;                // 0: it is being replaced, or on another machine
    bool is_up = false;
};

class LoopThread;

class PipelineSession {
public:
    /// Spawns the processes of `pipeline` and waits until all have loaded. `file` must outlive the
    /// session. Errors: as place(), check_gpus(), check_memory() and make_cpu_backend(); PeerGone
    /// naming the stage.
    [[nodiscard]] static Result<std::unique_ptr<PipelineSession>> open(
        const ModelFile& file,
        const ModelOptions& model,
        const ResolvedConfig& pipeline,
        const SessionOptions& options);
    /// As end().
    ~PipelineSession();
    PipelineSession(const PipelineSession&) = delete;
    PipelineSession& operator=(const PipelineSession&) = delete;

    /// What submit() would refuse of a new request, without the loop. Errors: those of validate().
    [[nodiscard]] Status check(const Request& request) const;
    /// order.request.context 0: the session's. Errors: those of ConductorActor::submit().
    Result<RequestId> submit(AnswerOrder order);
    /// Ends an answer as if its callback had said Stop.
    void cancel(RequestId request);
    /// Waits until every answer has ended; returns at once if none is open. The error of a single
    /// answer is passed to its on_end. Errors: the pipeline cannot continue.
    [[nodiscard]] Status run();

    /// Executes `what` on the loop's thread, between two messages, and waits for it.
    void call(const std::function<void()>& what);
    /// The same without waiting.
    void post(std::function<void()> what);
    /// Calls `what` on the loop's thread each `period` from now on, until the loop ends.
    void call_every(Micros period, std::function<void()> what);
    /// `told` is called on the loop's thread when the loop ends, at once if it has, with the reason
    /// if it is an error: open answers get no further tokens, and their on_end is not called.
    void on_over(std::function<void(const Status& ended)> told);

    void close(RequestId request);  // forgets an ended request
    /// Ends loop and stages, and waits for them; open orders end without a call. Afterwards nothing
    /// may be submitted; check(), the figures, and calls on the loop's thread go on. From one
    /// thread, not the loop's; a second call does nothing.
    void end();

    [[nodiscard]] Position context() const;  // of one request
    [[nodiscard]] int gamma_max() const;     // candidates after each other
    [[nodiscard]] GeneratorTraits traits() const;
    /// What happened since the session was opened or reset_stats() was called; time counts while an
    /// answer is open, verdicts when their answer has ended.
    [[nodiscard]] PipelineStats stats() const;
    void reset_stats();
    [[nodiscard]] PipelineUsage usage() const;
    /// Rows of prompts that the target has processed since then.
    [[nodiscard]] std::int32_t prefilled_rows() const;
    [[nodiscard]] std::vector<SessionProcess> stages() const;
    /// Those that are being replaced now.
    [[nodiscard]] std::vector<LostStage> lost_stages() const;
    /// Everything so far as a trace file (runtime/observe/trace_file.hpp), also after a failed run.
    [[nodiscard]] std::string trace_text() const;

private:
    class Impl;
    PipelineSession(std::unique_ptr<LoopThread> thread, std::unique_ptr<Impl> impl);
    std::unique_ptr<LoopThread> thread_;  // before what it runs
    std::unique_ptr<Impl> impl_;
    bool ended_ = false;
};

}  // namespace paceline
