#include "launch/session/load_bar.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <fstream>
#include <string>
#include <utility>

namespace paceline {

namespace {

constexpr std::chrono::milliseconds kPause{100};

/// Memory of its own, without files that it maps; 0 if the process is gone.
std::uint64_t own_bytes(pid_t pid) {
    std::ifstream status{fmt::format("/proc/{}/status", pid)};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("RssAnon:", 0) == 0) return std::stoull(line.substr(8)) * 1024;
    }
    return 0;
}

}  // namespace

LoadBar::LoadBar(std::vector<pid_t> pids, std::uint64_t bytes, Show show, RunLog& log)
    : pids_{std::move(pids)},
      bytes_{std::max<std::uint64_t>(1, bytes)},
      log_{log},
      bar_{"loading stages", show} {
    if (show == Show::No) return;
    log_.before_news([this] { bar_.wipe(); });
    thread_ = std::thread{[this] { watch(); }};
}

LoadBar::~LoadBar() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard guard{lock_};
        over_ = true;
    }
    ended_.notify_one();
    thread_.join();
    log_.before_news({});
}

void LoadBar::watch() {
    std::unique_lock guard{lock_};
    while (!ended_.wait_for(guard, kPause, [this] { return over_; })) {
        std::uint64_t loaded = 0;
        for (const pid_t pid : pids_) loaded += own_bytes(pid);
        bar_.update(static_cast<double>(loaded) / static_cast<double>(bytes_));
    }
}

}  // namespace paceline
