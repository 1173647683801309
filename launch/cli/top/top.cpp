#include "launch/cli/top/top.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fmt/core.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <termios.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "launch/base/exit_codes.hpp"
#include "launch/base/interrupt.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_output.hpp"
#include "launch/cli/top/top_scan.hpp"
#include "launch/cli/top/top_table.hpp"
#include "model/backend.hpp"

namespace paceline {

namespace {

constexpr const char* kTopCommand = "top";
constexpr std::chrono::milliseconds kGlance{50};  // how late Ctrl-C may be noticed

using Pipelines = std::vector<PipelineSample>;

Pipelines scan(const TopOptions& options) {
    return scan_pipelines(options.pid == 0 ? std::nullopt : std::optional<pid_t>{options.pid});
}

/// The tables of all pipelines, one below the other. One that was not there before has no rates.
std::vector<std::string> all_lines(const Pipelines& before,
                                   const Pipelines& after,
                                   std::size_t columns = kTopColumns) {
    std::vector<std::string> lines;
    for (const PipelineSample& pipeline : after) {
        const auto then = std::find_if(
            before.begin(), before.end(),
            [&](const PipelineSample& sample) { return sample.conductor == pipeline.conductor; });
        if (!lines.empty()) lines.emplace_back();
        const PipelineSample& first = then == before.end() ? pipeline : *then;
        for (std::string& line : table_lines(first, pipeline, columns))
            lines.push_back(std::move(line));
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

    /// Without the last column: clearing to the line's end would take what stands there.
    [[nodiscard]] static std::size_t columns() {
        winsize size{};
        const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        return known ? size.ws_col - 1U : kTopColumns;
    }

    [[nodiscard]] Status draw(std::vector<std::string> lines) {
        winsize size{};
        if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1) {
            // What scrolled out of sight or was wrapped could not be drawn over.
            lines.resize(std::min<std::size_t>(lines.size(), size.ws_row - 1U));
            for (std::string& line : lines) line.resize(std::min(line.size(), columns()));
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

/// Letters of standard input as they are typed, where it is a terminal.
class Keys {
public:
    explicit Keys(bool terminal) : terminal_{terminal && ::tcgetattr(STDIN_FILENO, &before_) == 0} {
        if (!terminal_) return;
        termios now = before_;
        now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // ISIG stays: Ctrl-C is a signal
        ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
    }
    Keys(const Keys&) = delete;
    Keys& operator=(const Keys&) = delete;
    ~Keys() {
        if (terminal_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }

    /// Whether q was typed within `time`; may return earlier.
    [[nodiscard]] bool quit_within(std::chrono::milliseconds time) const {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        if (::poll(&input, terminal_ ? 1 : 0, static_cast<int>(time.count())) <= 0) return false;
        std::array<char, 64> letters{};
        const ssize_t count = ::read(STDIN_FILENO, letters.data(), letters.size());
        const auto end = letters.begin() + std::max<ssize_t>(0, count);
        if (count <= 0) std::this_thread::sleep_for(time);  // the terminal hung up
        return std::any_of(letters.begin(), end, [](char c) { return c == 'q' || c == 'Q'; });
    }

private:
    termios before_{};
    bool terminal_;
};

/// Returns early, with true, when a signal came or q was typed.
bool pause(std::chrono::duration<double> time, const CancelToken& cancel, const Keys& keys) {
    using std::chrono::milliseconds;
    const auto end = std::chrono::steady_clock::now() + time;
    while (!cancel.cancelled()) {
        const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        if (keys.quit_within(std::min(left, kGlance))) return true;
    }
    return true;
}

int show_live(const TopOptions& options, const CancelToken& cancel, bool keyboard) {
    const Keys keys{keyboard};
    Screen screen;
    Pipelines before;
    bool seen = false;
    while (true) {
        Pipelines after = scan(options);
        if (after.empty() && seen) {
            std::puts("The pipelines have ended.");
            return kExitOk;
        }
        const Status drawn =
            after.empty()
                ? screen.draw(
                      {"Waiting for a pipeline; `paceline run --method NAME` starts one. q quits."})
                : screen.draw(all_lines(before, after, Screen::columns()));
        if (!drawn.ok()) return kExitFailure;  // which main() explains
        seen = seen || !after.empty();
        before = std::move(after);
        if (pause(std::chrono::duration<double>{options.interval_seconds}, cancel, keys))
            return cancel.cancelled() ? kExitInterrupted : kExitOk;
    }
}

int show_once(const TopOptions& options, const Pipelines& before, const CancelToken& cancel) {
    const Keys keys{false};
    if (pause(std::chrono::duration<double>{options.interval_seconds}, cancel, keys))
        return kExitInterrupted;
    const Pipelines after = scan(options);
    // One that ended in between is shown as it was.
    const Pipelines& last = after.empty() ? before : after;
    for (const std::string& line : all_lines(before, last)) std::puts(line.c_str());
    return kExitOk;
}

/// Of a process that has not started its stages yet.
bool is_running(int pid) {
    return ::kill(pid, 0) == 0;
}

}  // namespace

Command add_top(Command& app, TopOptions& options) {
    Command command = app.add_command(kTopCommand, "What running pipelines are doing right now");
    command.add_option("-i,--interval", options.interval_seconds,
                       "seconds between two looks; rates are over this time",
                       number_between(0.05, 3600));
    command
        .add_option("--pid", options.pid,
                    "only the pipeline of this conductor, the `paceline` that was started")
        .check(whole_number(1));
    command.add_flag("--once", options.once, "print one table and end, as into a pipe");
    command.footer(
        "On a terminal the table is redrawn until q or Ctrl-C, or until the pipelines have ended; "
        "it waits\n"
        "for one where none is running yet.\n"
        "A stage is `late` past the deadline that it set itself, and `gone` once its process is.\n"
        "docs/observability.md has the formula of every number.");
    return command;
}

int run_top(const TopOptions& options, const Environment& environment) {
    CancelToken cancel;
    const Interrupt interrupt{cancel, std::chrono::milliseconds{0}};
    const Pipelines before = scan(options);
    const bool live = environment.stdout_is_terminal && !options.once;
    if (before.empty() && (!live || (options.pid != 0 && !is_running(options.pid)))) {
        const std::string what =
            options.pid == 0
                ? "no pipeline of this user is running; `paceline run --method NAME` starts one"
                : fmt::format("process {} runs no pipeline of this user", options.pid);
        return report_failure(kTopCommand, {Errc::BadArgument, what});
    }
    const int code = live ? show_live(options, cancel, environment.stdin_is_terminal)
                          : show_once(options, before, cancel);
    return interrupt.draining() ? kExitTerminated : code;
}

}  // namespace paceline
