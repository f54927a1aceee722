// Lists whose length a program's file decides: sizes of a tensor and coordinates of an element. Reading beyond their end throws std::out_of_range, which
// the lowering names as the program's fault: the rank that a file gives a value need not be the one that its operator gives.
#pragma once

#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "expr/expr.h"

namespace coil {

template <class T>
class CheckedList : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  CheckedList() = default;
  CheckedList(std::vector<T> all) : std::vector<T>(std::move(all)) {}  // NOLINT: they are the same

  T& operator[](size_t i) { return this->at(i); }
  const T& operator[](size_t i) const { return this->at(i); }
  T& front() { return this->at(0); }
  const T& front() const { return this->at(0); }
  T& back() { return this->at(this->size() - 1); }
  const T& back() const { return this->at(this->size() - 1); }
  void pop_back() {
    (void)back();
    std::vector<T>::pop_back();
  }
};
using Sizes = CheckedList<Expr>;

[[noreturn]] void throw_outside();  // std::out_of_range

class Coordinates : public std::span<const Expr> {
 public:
  using std::span<const Expr>::span;
  Coordinates(std::span<const Expr> all) : std::span<const Expr>(all) {}  // NOLINT: they are the same

  const Expr& operator[](size_t i) const { return checked(i < size()).std::span<const Expr>::operator[](i); }
  const Expr& front() const { return checked(!empty()).std::span<const Expr>::front(); }
  const Expr& back() const { return checked(!empty()).std::span<const Expr>::back(); }
  Coordinates first(size_t n) const { return checked(n <= size()).std::span<const Expr>::first(n); }
  Coordinates last(size_t n) const { return checked(n <= size()).std::span<const Expr>::last(n); }
  Coordinates subspan(size_t from) const { return checked(from <= size()).std::span<const Expr>::subspan(from); }
  Coordinates subspan(size_t from, size_t n) const { return checked(from <= size() && n <= size() - from).std::span<const Expr>::subspan(from, n); }

 private:
  const Coordinates& checked(bool inside) const {
    if (!inside) throw_outside();
    return *this;
  }
};

}  // namespace coil
