// Report: what a bench found, as Markdown tables on standard output and as one JSON file.
//
// Tables are printed as soon as they are added: a run that is cut short has shown what it had.
// Figures are single numbers by name, for goals and for scripts. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline::bench {

struct Table {
    std::string title;
    std::vector<std::string> header;
    std::vector<std::vector<std::string>> rows{};
};

[[nodiscard]] std::string fixed(double value, int digits);
[[nodiscard]] inline std::string microseconds(double seconds) {
    return fixed(1e6 * seconds, 1);
}
[[nodiscard]] inline std::string percent(double share) {
    return fixed(100.0 * share, 1) + " %";
}

class Report {
public:
    /// Lines of the head: name and value, shown as "name: value".
    void say(const std::string& name, const std::string& value);
    void add(const Table& table);
    void figure(const std::string& name, double value) { figures_[name] = value; }
    /// Nothing measured under that name: 0.
    [[nodiscard]] double figure(const std::string& name) const;
    /// Errors: System, naming the file.
    [[nodiscard]] Status write_json(const std::string& path) const;

private:
    std::vector<std::pair<std::string, std::string>> head_;
    std::vector<Table> tables_;
    std::map<std::string, double> figures_;
};

/// The first line that `command` prints; empty if it prints none.
[[nodiscard]] std::string first_line_of(const std::string& command);

}  // namespace paceline::bench
