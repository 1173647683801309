#include "launch/plan/plan_table.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr std::size_t kRefusalShown = 160;  // bytes

std::string gain_text(double gain) {
    return gain > 0.0 ? fmt::format("{:.2f}", gain) : "-";
}

std::string row_of(const PlannedMethod& method) {
    std::string notes;
    for (const std::string& note : method.notes) notes += (notes.empty() ? "" : "; ") + note;
    std::string row = fmt::format(
        "{:<24} {:>9} {:>6} MB {:>10} {:>9}  {}", method.name, method.processes,
        method.memory_bytes / 1'000'000, gain_text(method.predicted_gain),
        gain_text(method.measured ? method.measured->gain : 0.0), visible(notes, kRefusalShown));
    row.erase(row.find_last_not_of(' ') + 1);
    return row + "\n";
}

bool faster(const PlannedMethod& a, const PlannedMethod& b) {
    if (a.measured.has_value() != b.measured.has_value()) return a.measured.has_value();
    if (a.measured && a.measured->gain != b.measured->gain)
        return a.measured->gain > b.measured->gain;
    return a.predicted_gain > b.predicted_gain;
}

}  // namespace

std::string plan_table(const PlanHead& head,
                       std::vector<PlannedMethod> methods,
                       const AutoChoice& choice) {
    std::stable_sort(methods.begin(), methods.end(), faster);
    std::string text = fmt::format(
        "{}, {} core{}; costs measured in {:.1f} s; a draft's candidate is right in {:.0f} % ({})\n"
        "times plain decoding, for one request:\n"
        "{:<24} {:>9} {:>9} {:>10} {:>9}\n",
        visible(head.model, kRefusalShown), head.cores, head.cores == 1 ? "" : "s",
        head.cost_seconds, 100.0 * head.acceptance, head.acceptance_source, "method", "processes",
        "memory", "predicted", "measured");
    for (const PlannedMethod& method : methods) {
        if (method.refusal.empty()) text += row_of(method);
    }
    for (const PlannedMethod& method : methods) {
        if (!method.refusal.empty())
            text += fmt::format("cannot decode it here: {}: {}\n", method.name,
                                visible(method.refusal, kRefusalShown));
    }
    return text + fmt::format("--method auto takes {}: {}\n", choice.method, choice.reason);
}

}  // namespace paceline
