// What was to be reached, against what was measured. Shares of bandwidth are of the card's own, as
// a copy kernel reaches it in the same process; the prefill's is of the data sheet's bf16 rate and
// left out for a card without one (card.hpp).
#include <fmt/core.h>
#include <functional>

#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

struct Goal {
    const char* what;
    double wanted;
    double aim;          // 0: none beyond `wanted`
    const char* figure;  // its name without the context
    bool at_context;
    bool most;  // not more than `wanted`, instead of not less
};

using Goals = std::vector<Goal>;

Goals goals_of(const std::string& shape) {
    if (shape == "llama-8b") {
        return {
            {"decode of one row, of a copy's bandwidth", 0.70, 0.85, "batch.share.1", true, false},
            {"8 rows over one", 1.10, 0.0, "batch.ratio.8", true, true},
            {"16 rows over one", 1.15, 0.0, "batch.ratio.16", true, true},
            {"gumbel of a batch of 8", 0.03, 0.0, "draw.share.gumbel", false, true},
            {"gumbel with top-k of a batch of 8", 0.03, 0.0, "draw.share.gumbel, top-k 40", false,
             true},
            {"prefill, of the data sheet's bf16 rate", 0.40, 0.0, "prefill.share", false, false}};
    }
    if (shape == "llama-1b")
        return {
            {"decode of one row, of a copy's bandwidth", 0.55, 0.75, "batch.share.1", true, false}};
    return {};
}

}  // namespace

void goals_section(const Bench& bench) {
    const std::string& shape = bench.file.config().name;
    const std::string at = fmt::format(".{}", usual_context(bench.settings));
    Table table{"Goals of " + shape + ", the device alone",
                {"goal", "wanted", "aim", "measured", "reached"}};
    const auto add = [&](const std::string& what, double wanted, double aim, double got, bool most,
                         int digits) {
        if (got <= 0.0) return;
        const bool reached = most ? got <= wanted : got >= wanted;
        table.rows.push_back({what, fixed(wanted, digits), aim > 0.0 ? fixed(aim, digits) : "-",
                              fixed(got, digits), reached ? "yes" : "no"});
    };
    for (const Goal& goal : goals_of(shape)) {
        const std::string name = goal.figure + (goal.at_context ? at : "");
        add(goal.what, goal.wanted, goal.aim, bench.report.figure(name), goal.most, 3);
    }
    if (shape == "smollm2-135m") {
        const double wall = bench.report.figure("batch.wall.seconds.1" + at);
        if (wall > 0.0)
            add("tokens/s of one row, wall, drawn greedily", 2500, 0.0, 1.0 / wall, false, 0);
    }
    if (!table.rows.empty()) bench.report.add(table);
}

}  // namespace paceline::bench
