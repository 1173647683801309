// GenerateProgress: how far `paceline generate` is, on stderr.
//
// On a terminal one line that is drawn over and wiped at the end, otherwise a line every 30
// seconds. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace paceline {

class GenerateProgress {
public:
    /// Of `answers` in all; `terminal`: stderr is one.
    GenerateProgress(std::int64_t answers, bool terminal);
    GenerateProgress(const GenerateProgress&) = delete;
    GenerateProgress& operator=(const GenerateProgress&) = delete;
    ~GenerateProgress();

    /// The clock begins anew: the model is loaded.
    void start() { begin_ = shown_ = Clock::now(); }
    void answer_done() { ++done_; }
    /// Tokens drawn and rows run since the last call; shows where that is due.
    void batch_done(int drawn, int rows);

    [[nodiscard]] std::int64_t answers() const { return done_; }
    [[nodiscard]] std::int64_t tokens() const { return tokens_; }
    [[nodiscard]] std::int64_t rows() const { return rows_; }
    [[nodiscard]] double seconds() const;

private:
    [[nodiscard]] std::string line() const;

    using Clock = std::chrono::steady_clock;
    std::int64_t all_;
    bool terminal_;
    Clock::time_point begin_ = Clock::now();
    Clock::time_point shown_ = begin_;
    bool drawn_ = false;
    std::int64_t done_ = 0;
    std::int64_t tokens_ = 0;
    std::int64_t rows_ = 0;
};

}  // namespace paceline
