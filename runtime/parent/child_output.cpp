#include "runtime/parent/child_output.hpp"

#include <array>
#include <cerrno>
#include <unistd.h>
#include <utility>

namespace paceline {
namespace {

constexpr std::size_t kLastWords = 12;  // lines
constexpr int kReadsPerPoll = 1;        // 4 KiB each
constexpr int kLastReads = 32;          // of one that has ended: more than a pipe holds

}  // namespace

ChildOutput::ChildOutput(boost::asio::io_context& io, OwnedFd pipe, ChildLog::OnLine on_line)
    : pipe_{io, pipe.release()}, log_{kLastWords, std::move(on_line)} {}

void ChildOutput::watch() {
    pipe_.async_wait(pipe_.wait_read, [this](const boost::system::error_code& error) {
        if (error) return;
        read(kReadsPerPoll);
        if (!closed_) watch();
    });
}

void ChildOutput::finish() {
    read(kLastReads);
    log_.finish();
}

void ChildOutput::read(int reads_max) {
    std::array<char, 4096> text;
    for (int reads = 0; reads < reads_max; ++reads) {
        const ssize_t count = ::read(pipe_.native_handle(), text.data(), text.size());
        if (count > 0) {
            log_.append({text.data(), static_cast<std::size_t>(count)});
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        closed_ = closed_ || count == 0;
        return;
    }
}

std::string ChildOutput::last_words() const {
    const std::string words = log_.last_words();
    return words.empty() ? "" : "; its last lines:" + words;
}

}  // namespace paceline
