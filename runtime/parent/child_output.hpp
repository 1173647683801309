// ChildOutput: reads what a child writes to stdout and stderr, line by line (child_log.hpp).
//
// Bounded per wake-up, so that a child that writes endlessly does not delay others.
// Owns the pipe. Stays at its address while the io_context runs. One thread, the io_context's.
#pragma once

#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "ipc/transport/owned_fd.hpp"
#include "runtime/parent/child_log.hpp"

namespace paceline {

class ChildOutput {
public:
    ChildOutput(boost::asio::io_context& io, OwnedFd pipe, ChildLog::OnLine on_line);
    ChildOutput(const ChildOutput&) = delete;
    ChildOutput& operator=(const ChildOutput&) = delete;

    /// The first wake-up is requested.
    void watch();
    /// The child has ended: reads what is left in the pipe.
    void finish();
    /// "; its last lines: ..." or nothing.
    [[nodiscard]] std::string last_words() const;

private:
    void read(int reads_max);

    boost::asio::posix::stream_descriptor pipe_;
    ChildLog log_;
    bool closed_ = false;
};

}  // namespace paceline
