// SimulateReport: what `paceline simulate` prints and writes.
//
// Of a single run: a line per prompt, the rate, and the figures of `run`. Of a sweep: a line per
// combination. Collects cases; no side effects.
#pragma once

#include <string>
#include <vector>

#include "launch/load/prompt_sets.hpp"
#include "launch/simulate/settings.hpp"
#include "launch/simulate/world.hpp"

namespace paceline {

struct SimulatedCase {
    std::vector<Setting> settings;
    SimulatedRun run;
    std::string method;
};

class SimulateReport {
public:
    /// `plain` in the order of the prompts; empty: nothing is compared. Both must outlive it.
    SimulateReport(const std::vector<Prompt>& prompts, const std::vector<Answer>& plain)
        : prompts_{prompts}, plain_{plain} {}

    /// Simulated tokens/s of plain decoding, to compare with; 0: not simulated.
    void set_baseline(double rate) { baseline_ = rate; }
    void add(SimulatedCase made) { cases_.push_back(std::move(made)); }
    /// Whether all answers so far are plain decoding's; true if nothing is compared.
    [[nodiscard]] bool all_equal() const;

    [[nodiscard]] std::string last_text() const;    // of the newest case
    [[nodiscard]] std::string sweep_table() const;  // of all, Markdown
    [[nodiscard]] std::string json_text() const;    // of all, a list

private:
    [[nodiscard]] bool equal(const SimulatedCase& made, std::size_t prompt) const;

    const std::vector<Prompt>& prompts_;
    const std::vector<Answer>& plain_;
    double baseline_ = 0.0;
    std::vector<SimulatedCase> cases_;
};

}  // namespace paceline
