#include "launch/cli/top.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "launch/base/exit_codes.hpp"
#include "launch/base/interrupt.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_output.hpp"
#include "launch/cli/top_scan.hpp"
#include "launch/cli/top_table.hpp"
#include "model/backend.hpp"

namespace paceline {

namespace {

constexpr const char* kCommand = "top";
constexpr std::chrono::milliseconds kGlance{50};  // how late Ctrl-C may be noticed

using Pipelines = std::vector<PipelineSample>;

Pipelines scan(const TopOptions& options) {
    return scan_pipelines(options.pid == 0 ? std::nullopt : std::optional<pid_t>{options.pid});
}

/// The tables of all pipelines, one below the other. One that was not there before has no rates.
std::vector<std::string> all_lines(const Pipelines& before, const Pipelines& after) {
    std::vector<std::string> lines;
    for (const PipelineSample& pipeline : after) {
        const auto then = std::find_if(
            before.begin(), before.end(),
            [&](const PipelineSample& sample) { return sample.conductor == pipeline.conductor; });
        if (!lines.empty()) lines.emplace_back();
        const PipelineSample& first = then == before.end() ? pipeline : *then;
        for (std::string& line : table_lines(first, pipeline)) lines.push_back(std::move(line));
    }
    return lines;
}

/// A part of the terminal that is drawn again and again. The cursor is hidden while one exists.
class Screen {
public:
    Screen() { std::fputs("\x1b[?25l", stdout); }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;
    ~Screen() {
        std::fputs("\x1b[?25h", stdout);
        std::fflush(stdout);
    }

    [[nodiscard]] Status draw(std::vector<std::string> lines) {
        winsize size{};
        if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 && size.ws_col > 0) {
            // What scrolled out of sight or was wrapped could not be drawn over.
            lines.resize(std::min<std::size_t>(lines.size(), size.ws_row - 1U));
            for (std::string& line : lines) {
                // Not the last column: clearing to the line's end would take what stands there.
                line.resize(std::min<std::size_t>(line.size(), size.ws_col - 1U));
            }
        }
        if (drawn_ > 0) std::printf("\x1b[%zuA", drawn_);
        for (const std::string& line : lines) std::printf("\r%s\x1b[K\n", line.c_str());
        std::fputs("\x1b[J", stdout);
        drawn_ = lines.size();
        return flush_stdout();
    }

private:
    std::size_t drawn_ = 0;  // lines
};

/// Returns early when a signal came.
void pause(std::chrono::duration<double> time, const CancelToken& cancel) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!cancel.cancelled()) {
        const auto left = end - std::chrono::steady_clock::now();
        if (left.count() <= 0) return;
        std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, kGlance));
    }
}

int show_live(const TopOptions& options, Pipelines before, const CancelToken& cancel) {
    Screen screen;
    Status drawn = screen.draw(all_lines({}, before));
    while (drawn.ok()) {
        pause(std::chrono::duration<double>{options.interval_seconds}, cancel);
        if (cancel.cancelled()) return kExitInterrupted;
        Pipelines after = scan(options);
        if (after.empty()) {
            std::puts("The pipelines have ended.");
            return kExitOk;
        }
        drawn = screen.draw(all_lines(before, after));
        before = std::move(after);
    }
    return kExitFailure;  // which main() explains
}

int show_once(const TopOptions& options, const Pipelines& before, const CancelToken& cancel) {
    pause(std::chrono::duration<double>{options.interval_seconds}, cancel);
    if (cancel.cancelled()) return kExitInterrupted;
    const Pipelines after = scan(options);
    // One that ended in between is shown as it was.
    const Pipelines& last = after.empty() ? before : after;
    for (const std::string& line : all_lines(before, last)) std::puts(line.c_str());
    return kExitOk;
}

}  // namespace

Command add_top(Command& app, TopOptions& options) {
    Command command = app.add_command(kCommand, "What running pipelines are doing right now");
    command
        .add_option("-i,--interval", options.interval_seconds,
                    "seconds between two looks; rates are over this time")
        .check(number_between(0.05, 3600))
        .show_default();
    command
        .add_option("--pid", options.pid,
                    "only the pipeline of this conductor, the `paceline` that was started")
        .check(whole_number(1));
    command.add_flag("--once", options.once, "print one table and end, as into a pipe");
    command.footer(
        "A stage is `late` past the deadline that it set itself, and `gone` once its process is.\n"
        "docs/observability.md has the formula of every number.");
    return command;
}

int run_top(const TopOptions& options, const Environment& environment) {
    CancelToken cancel;
    const Interrupt interrupt{cancel, std::chrono::milliseconds{0}};
    const Pipelines before = scan(options);
    if (before.empty()) {
        const std::string what =
            options.pid == 0
                ? "no pipeline of this user is running; `paceline run --config FILE` starts one"
                : fmt::format("process {} runs no pipeline of this user", options.pid);
        return report_failure(kCommand, {Errc::BadArgument, what});
    }
    const bool live = environment.stdout_is_terminal && !options.once;
    const int code = live ? show_live(options, before, cancel) : show_once(options, before, cancel);
    return interrupt.draining() ? kExitTerminated : code;
}

}  // namespace paceline
