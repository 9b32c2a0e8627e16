"""Other decoding methods on the roofline of SBD and NTP: what each costs per emitted token. Priced, never run."""
