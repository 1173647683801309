// RunLog: the log of a run: one time line of the conductor and all stages.
//
//     2026-03-01 10:00:00.123 segment-1[4242] info: weights loaded: 63.1 MB in 0.41 s
//     2026-03-01 10:00:02.000 conductor[4241] warning: stage 'segment-1' (process 4242) was killed
//
// Goes to a file (--log), to stderr (--verbose), to both or nowhere. News (a stage is lost, or
// back) and a stage's warnings go to stderr in any case. A stage's lines come through the pipe of
// its stderr (runtime/parent/child_log.hpp). All text goes through visible(). Threads: info(),
// news() and stage_line() from any.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "ipc/base/result.hpp"

namespace spdlog {
class logger;
}

namespace paceline {

class RunLog {
public:
    RunLog() = default;  // writes nothing
    /// Errors: BadArgument if `file` (empty: none) cannot be written.
    [[nodiscard]] static Result<RunLog> open(const std::string& file, bool verbose);

    [[nodiscard]] bool wanted() const { return logger_ != nullptr; }
    /// Whether all lines arrived. Errors: System with file and reason (the disk is full).
    [[nodiscard]] Status written() const;
    [[nodiscard]] bool verbose() const { return verbose_; }
    /// The conductor's own.
    void info(const std::string& text);
    /// May have several lines (last words).
    void news(const std::string& text);
    /// Called before news are written to stderr, where a progress bar may be; empty: nothing is.
    void before_news(std::function<void()> wipe) {
        const std::lock_guard lock{*mutex_};
        before_news_ = std::move(wipe);
    }
    /// A line that the stage `name` wrote.
    void stage_line(std::string_view name, std::string_view line);

private:
    /// Writes to stderr, unless --verbose has logged the line there already. Needs the lock.
    void show(const std::string& text);

    std::shared_ptr<spdlog::logger> logger_;  // nullptr: writes nothing
    std::shared_ptr<std::string> failure_;    // the first one; empty: none
    bool verbose_ = false;
    std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
    std::function<void()> before_news_;
};

/// The prefix of a process's lines: "segment-1[4242]".
[[nodiscard]] std::string log_name(std::string_view name);

/// In a stage: from now on spdlog's default logger writes "NAME[PID] LEVEL: TEXT" to stderr;
/// warnings and errors only, unless spdlog::set_level() asks for more. Threads of jobs may log too.
void log_as_stage(const std::string& name);

}  // namespace paceline
