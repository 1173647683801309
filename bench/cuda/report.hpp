// Report: what a bench found, as Markdown tables on standard output and as one JSON file.
//
// Tables are printed as soon as they are added: a run that is cut short has shown what it had.
// Figures are single numbers by name, for goals and for scripts. Faults are wrong results. One
// thread.
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
/// `part` as a share of `whole`; "-" where the whole is not known (0).
[[nodiscard]] inline std::string share_of(double part, double whole) {
    return whole > 0.0 ? percent(part / whole) : "-";
}

class Report {
public:
    /// Lines of the head: name and value, shown as "name: value".
    void say(const std::string& name, const std::string& value);
    void add(const Table& table);
    /// A value that is not finite is a fault.
    void figure(const std::string& name, double value);
    /// Nothing measured under that name: 0.
    [[nodiscard]] double figure(const std::string& name) const;
    /// A wrong result: the bench goes on, shows the fault at once, writes it to JSON and ends with
    /// an error.
    void fault(const std::string& what);
    /// Errors: System, with the number of faults and the first of them, if there are any.
    [[nodiscard]] Status verdict() const;
    /// Errors: System, naming the file.
    [[nodiscard]] Status write_json(const std::string& path) const;

private:
    std::vector<std::pair<std::string, std::string>> head_;
    std::vector<Table> tables_;
    std::map<std::string, double> figures_;
    std::vector<std::string> faults_;
};

/// The first line that `command` prints; empty if it prints none.
[[nodiscard]] std::string first_line_of(const std::string& command);

}  // namespace paceline::bench
