// Interrupt: handles Ctrl-C and SIGTERM during an answer.
//
//     SIGINT    the answer ends: the cancel token is raised
//     SIGTERM   the answer may finish within the drain limit, then the token is raised; the
//               caller begins nothing new (draining())
//     SIGUSR1   as SIGTERM: what Slurm sends before a job's end (--signal=USR1@60); before there is
//               an answer, end_on_usr1_while_loading()
//
// After either of them the signals' default action is back at once, so another one kills. One at a
// time per process (checked): the handlers need a global place. Without SA_RESTART, so that a
// read waiting for the user returns.
#pragma once

#include <chrono>

#include "model/backend.hpp"

namespace paceline {

class Interrupt {
public:
    /// The limit is rounded up to whole seconds; 0: SIGTERM ends the answer like SIGINT.
    Interrupt(CancelToken& cancel, std::chrono::milliseconds drain_limit);
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;
    ~Interrupt();

    [[nodiscard]] bool raised() const;    // a SIGINT came
    [[nodiscard]] bool draining() const;  // a SIGTERM came; stays
    /// Forgets a SIGINT that was dealt with, and catches the next one again.
    void rearm();
};

/// Until an Interrupt takes over: a SIGUSR1 ends the program with kExitTerminated and a sentence,
/// as there is no answer yet that could end. Stages and agents end with it.
void end_on_usr1_while_loading();

}  // namespace paceline
