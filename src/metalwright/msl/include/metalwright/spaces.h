// Address spaces as types, for a look at a program that no code is made of: a pointer into one converts to no other.
// The names are those of the words, since the compiler writes them into its messages. It is included behind all other
// headers, whose pointers lead anywhere: on the target that this is for, a pointer without an address space takes all.
#pragma once

#define thread __attribute__((address_space(5)))
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(4)))
#define threadgroup __attribute__((address_space(3)))

namespace __mw::spaces {
template <class T> threadgroup T& threadgroup_variable(int);
template <class T> thread T& of_thread(T&);
}  // namespace __mw::spaces
