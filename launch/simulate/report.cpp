#include "launch/simulate/report.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "launch/base/json_text.hpp"
#include "launch/base/table_text.hpp"
#include "launch/session/answer_compare.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

std::string fixed(double value, int digits) {
    char text[48];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

std::string sweep_text(const std::vector<Setting>& settings) {
    std::string text;
    for (const Setting& setting : settings) {
        text += (text.empty() ? "" : " ") + setting.key + "=" + setting.value;
    }
    return text.empty() ? "-" : text;
}

}  // namespace

bool SimulateReport::equal(const SimulatedCase& made, std::size_t prompt) const {
    return plain_.empty() || !first_difference(made.run.answers[prompt].ids, plain_[prompt].ids);
}

bool SimulateReport::all_equal() const {
    for (const SimulatedCase& made : cases_) {
        for (std::size_t i = 0; i < made.run.answers.size(); ++i) {
            if (!equal(made, i)) return false;
        }
    }
    return true;
}

std::string SimulateReport::last_text() const {
    const SimulatedCase& made = cases_.back();
    std::string text =
        visible(made.method + ", settings " + sweep_text(made.settings), kLineShownBytesMax) + "\n";
    for (std::size_t i = 0; i < made.run.answers.size(); ++i) {
        const Answer& answer = made.run.answers[i];
        char line[256];
        std::snprintf(line, sizeof line, "  %-24.24s %5zu tokens %9.2f tokens/s",
                      visible(visible(prompts_[i].id), 21).c_str(), answer.ids.size(),
                      answer.stats.decode_rate());
        text += line;
        if (first_loop(answer.ids)) text += "  repeats itself";
        if (!plain_.empty()) {
            text += "  " + (equal(made, i) ? std::string{"equal"}
                                           : difference_text(answer.ids, plain_[i].ids));
        }
        text += "\n";
    }
    text += "simulated: " + fixed(made.run.stats.rate, 2) + " tokens/s, " +
            fixed(made.run.stats.seconds, 3) + " s, draft and target both busy " +
            fixed(100 * made.run.overlap.both, 1) + " % of the time\n";
    if (baseline_ > 0.0)
        text += "times plain decoding: " + fixed(made.run.stats.rate / baseline_, 2) +
                " (plain: " + fixed(baseline_, 2) + " tokens/s on one device, simulated)\n";
    return text + stats_table(made.run.stats) + "\n";
}

std::string SimulateReport::sweep_table() const {
    std::string text =
        std::string{
            "| settings | tokens/s | acceptance length | draft busy | target busy | both |"} +
        std::string{baseline_ > 0.0 ? " times plain |" : ""} + "\n|---|---:|---:|---:|---:|---:|" +
        (baseline_ > 0.0 ? "---:|" : "") + "\n";
    for (const SimulatedCase& made : cases_) {
        const Overlap& overlap = made.run.overlap;
        text += "| " + markdown_cell(sweep_text(made.settings)) + " | " +
                fixed(made.run.stats.rate, 2) + " | " +
                fixed(made.run.stats.verdicts.mean_acceptance_length(), 2) + " | " +
                fixed(100 * overlap.draft, 0) + " % | " + fixed(100 * overlap.target, 0) + " % | " +
                fixed(100 * overlap.both, 0) + " % |";
        if (baseline_ > 0.0) text += " " + fixed(made.run.stats.rate / baseline_, 2) + " |";
        text += "\n";
    }
    return text;
}

std::string SimulateReport::json_text() const {
    nlohmann::json all = nlohmann::json::array();
    for (const SimulatedCase& made : cases_) {
        nlohmann::json one{{"method", made.method},
                           {"settings", nlohmann::json::object()},
                           {"tokens_per_second", made.run.stats.rate},
                           {"seconds", made.run.stats.seconds},
                           {"overlap",
                            {{"draft", made.run.overlap.draft},
                             {"target", made.run.overlap.target},
                             {"both", made.run.overlap.both}}},
                           {"figures", to_json(made.run.stats)},
                           {"prompts", nlohmann::json::array()}};
        if (baseline_ > 0.0) {
            one["plain_tokens_per_second"] = baseline_;
            one["times_plain"] = made.run.stats.rate / baseline_;
        }
        for (const Setting& setting : made.settings) one["settings"][setting.key] = setting.value;
        for (std::size_t i = 0; i < made.run.answers.size(); ++i) {
            const Answer& answer = made.run.answers[i];
            nlohmann::json row{{"id", prompts_[i].id},
                               {"tokens", answer.ids.size()},
                               {"tokens_per_second", answer.stats.decode_rate()},
                               {"batches", answer.stats.verdicts.batches},
                               {"proposed", answer.stats.verdicts.candidates},
                               {"accepted", answer.stats.verdicts.accepted},
                               {"loops", first_loop(answer.ids).has_value()},
                               {"ids", answer.ids}};
            if (!plain_.empty()) row["equal"] = equal(made, i);
            one["prompts"].push_back(std::move(row));
        }
        all.push_back(std::move(one));
    }
    return paceline::json_text(all, 1) + "\n";
}

}  // namespace paceline
