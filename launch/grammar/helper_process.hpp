// HelperProcess: one process that compiles grammars, started when it is first needed, and again
// after its death.
//
// Owns the process: the destructor ends it. One thread at a time; stop() from any.
#pragma once

#include <mutex>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "launch/grammar/helper_frames.hpp"

namespace paceline {

class HelperProcess {
public:
    /// `command` is argv, to which the descriptor is appended; empty: this program as a helper.
    /// `task` outlives this.
    HelperProcess(const HelperTask& task, std::vector<std::string> command);
    HelperProcess(const HelperProcess&) = delete;
    HelperProcess& operator=(const HelperProcess&) = delete;
    ~HelperProcess();

    /// Waits for the result. Errors: those of GrammarCompiler::compile(); BadArgument naming the
    /// limit that the grammar went over; System if no process can be started, or if it was killed
    /// twice; Cancelled after stop().
    [[nodiscard]] Result<CompiledGrammarPtr> compile(const GrammarSpec& spec);
    /// A grammar that is being compiled, and all later ones, end at once with an error.
    void stop();
    /// -1: none runs.
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    [[nodiscard]] Result<CompiledGrammarPtr> compile_once(const GrammarSpec& spec);
    [[nodiscard]] bool is_stopped();
    [[nodiscard]] Status start();
    [[nodiscard]] Error why_it_ended();
    void end();
    void close_socket();

    const HelperTask& task_;
    std::vector<std::string> command_;
    pid_t pid_ = -1;
    std::mutex mutex_;  // of the next two, for stop(); the owner's thread alone changes the socket
    OwnedFd socket_;
    bool stopped_ = false;
};

}  // namespace paceline
