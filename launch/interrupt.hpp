// Interrupt: turns the first Ctrl-C into a polite stop and leaves the second one deadly.
//
// While one exists, SIGINT and SIGTERM raise the cancel token and set a flag; the signal's
// default action is back at once, so another one kills. One at a time per process (checked): the
// handler needs a global place. Without SA_RESTART, so that a read waiting for the user returns.
#pragma once

#include "model/backend.hpp"

namespace paceline {

class Interrupt {
public:
    explicit Interrupt(CancelToken& cancel);
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;
    ~Interrupt();

    [[nodiscard]] bool raised() const;
    /// Forgets a signal that was dealt with, and catches the next one again.
    void rearm();
};

}  // namespace paceline
