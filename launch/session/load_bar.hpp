// LoadBar: how far the processes of a pipeline have loaded, on a terminal.
//
// The stages are not involved: the memory of their packed weights is read from /proc, the total is
// in the plan. A thread of its own reads it several times a second, because the conductor's thread
// waits for the stages. Weights on a GPU are not in /proc, so the bar stays short until the stages
// are ready.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "launch/base/progress_bar.hpp"
#include "launch/base/run_log.hpp"

namespace paceline {

class LoadBar {
public:
    /// `bytes`: of the weights of all processes together. `log` wipes the bar before its news.
    LoadBar(std::vector<pid_t> pids, std::uint64_t bytes, Show show, RunLog& log);
    LoadBar(const LoadBar&) = delete;
    LoadBar& operator=(const LoadBar&) = delete;
    ~LoadBar();  // wipes the line

private:
    void watch();

    std::vector<pid_t> pids_;
    std::uint64_t bytes_;
    RunLog& log_;
    ProgressBar bar_;
    std::mutex lock_;
    std::condition_variable ended_;
    bool over_ = false;  // under lock_
    std::thread thread_;
};

}  // namespace paceline
