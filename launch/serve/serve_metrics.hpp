// ServeMetrics: what the server itself counts, and GET /metrics in Prometheus' text format.
//
// The engine's counters come from its snapshot, the times of answers from their statistics. All
// counters only grow, also when a stage is restarted. vLLM's four vllm:spec_decode_* counters
// are there too, because load generators read them.
// One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "launch/api/served_model.hpp"

namespace paceline::serve {

/// Counts of times by upper bounds.
class TimeHistogram {
public:
    static constexpr std::array<double, 13> kBounds{0.005, 0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                                                    1.0,   2.5,  5.0,   10.0, 30.0, 60.0};
    void add(double seconds);
    void print(std::string& text, const char* name, const char* help) const;

private:
    std::array<std::uint64_t, kBounds.size() + 1> counts_{};
    double sum_ = 0.0;
};

class ServeMetrics {
public:
    void add_response(int status) { ++responses_[status]; }
    void open_connections(int change) { connections_ += change; }
    void add_disconnect() { ++disconnects_; }
    /// An answer has ended; `waited`: from its request to its end.
    void add_answer(const AnswerStats& stats, std::chrono::duration<double> waited);

    /// `model`: nullptr while it loads.
    [[nodiscard]] std::string text(const ServedModel* model);

private:
    void print_usage(std::string& text, const PipelineUsage& usage);
    /// The highest value that a counter of this name has had.
    double risen(const std::string& name, double value);

    std::map<std::string, double> highest_;
    std::map<int, std::uint64_t> responses_;  // by status
    std::int64_t connections_ = 0;
    std::uint64_t disconnects_ = 0;  // clients that closed before the end of an answer
    TimeHistogram first_token_;
    TimeHistogram per_token_;
    TimeHistogram request_;
};

}  // namespace paceline::serve
