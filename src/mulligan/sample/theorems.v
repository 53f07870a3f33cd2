(* Theorems to prove, from easy to hard, written for Mulligan. A comment before each says its split and its group: near variants of one
   idea have one group, and no group is in two splits. What can be learnt comes back in every split: what to induct on, what must stay
   general, when to unfold, which tactic decides which arithmetic. The proofs are references, known to tests alone. *)

(* ---- Logic ---- *)

(* source and-swaps *)
Theorem both_the_other_way : forall P Q : Prop, P /\ Q -> Q /\ P.
Proof. intros P Q [p q]. split; assumption. Qed.

(* source and-swaps *)
Theorem three_turned_round : forall P Q R : Prop, P /\ (Q /\ R) -> R /\ (Q /\ P).
Proof. intros P Q R [p [q r]]. repeat split; assumption. Qed.

(* heldout or-swaps *)
Theorem either_the_other_way : forall P Q : Prop, P \/ Q -> Q \/ P.
Proof. intros P Q [p | q]; [right | left]; assumption. Qed.

(* source chains *)
Theorem step_after_step : forall P Q R : Prop, (P -> Q) -> (Q -> R) -> P -> R.
Proof. intros P Q R f g p. apply g, f, p. Qed.

(* train contraposition *)
Theorem no_rain_no_puddle : forall Rain Puddle : Prop, (Rain -> Puddle) -> ~ Puddle -> ~ Rain.
Proof. intros Rain Puddle f n r. apply n, f, r. Qed.

(* heldout double-negation *)
Theorem not_refuted_excluded_middle : forall P : Prop, ~ ~ (P \/ ~ P).
Proof. intros P n. apply n. right. intros p. apply n. left. exact p. Qed.

(* source de-morgan *)
Theorem neither_nor : forall P Q : Prop, ~ (P \/ Q) <-> ~ P /\ ~ Q.
Proof. intros P Q. tauto. Qed.

(* heldout distribution *)
Theorem and_goes_into_or : forall P Q R : Prop, P /\ (Q \/ R) <-> (P /\ Q) \/ (P /\ R).
Proof. intros P Q R. tauto. Qed.

(* source quantifiers-and *)
Theorem all_have_both : forall (A : Type) (P Q : A -> Prop), (forall x, P x /\ Q x) -> (forall x, P x) /\ (forall x, Q x).
Proof. intros A P Q h. split; intros x; apply (h x). Qed.

(* heldout quantifiers-not *)
Theorem none_means_all_not : forall (A : Type) (P : A -> Prop), ~ (exists x, P x) -> forall x, ~ P x.
Proof. intros A P n x p. apply n. exists x. exact p. Qed.

(* train quantifiers-or *)
Theorem some_have_either : forall (A : Type) (P Q : A -> Prop), (exists x, P x \/ Q x) <-> (exists x, P x) \/ (exists x, Q x).
Proof. intros A P Q. split; [intros [x [p | q]] | intros [[x p] | [x q]]]; eauto. Qed.

(* heldout drinkers *)
Theorem one_for_all : forall (A : Type) (P : A -> A -> Prop), (exists y, forall x, P x y) -> forall x, exists y, P x y.
Proof. intros A P [y h] x. exists y. apply h. Qed.

(* ---- Truth values ---- *)

(* source negb-negb *)
Theorem flipped_twice : forall b : bool, negb (negb b) = b.
Proof. intros []; reflexivity. Qed.

(* heldout andb-orb *)
Theorem and_with_or_absorbs : forall a b : bool, andb a (orb a b) = a.
Proof. intros [] []; reflexivity. Qed.

(* train xorb *)
Theorem differs_from_itself_never : forall a b : bool, xorb a (xorb a b) = b.
Proof. intros [] []; reflexivity. Qed.

(* heldout negb-other *)
Theorem never_its_own_opposite : forall b : bool, negb b <> b.
Proof. intros []; discriminate. Qed.

(* source if-same *)
Theorem whichever_way : forall (A : Type) (b : bool) (x : A), (if b then x else x) = x.
Proof. intros A [] x; reflexivity. Qed.

Require Import Arith Lia.

(* ---- Natural numbers ---- *)

(* source plus-zero *)
Theorem nothing_added_on_the_right : forall n : nat, n + 0 = n.
Proof. induction n as [| n IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* source plus-zero *)
Theorem one_more_on_the_right : forall n m : nat, n + S m = S (n + m).
Proof. intros n m. induction n as [| n IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* heldout times-one *)
Theorem once_is_enough : forall n : nat, n * 1 = n.
Proof. induction n as [| n IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* train times-zero *)
Theorem nothing_times : forall n : nat, n * 0 = 0.
Proof. induction n as [| n IH]; simpl; [reflexivity | exact IH]. Qed.

(* source order-linear *)
Theorem between_two_neighbours : forall n m : nat, n < m -> m < n + 2 -> m = n + 1.
Proof. intros n m a b. lia. Qed.

(* heldout order-sum *)
Theorem larger_sums : forall a b c d : nat, a <= b -> c < d -> a + c < b + d.
Proof. intros a b c d h k. lia. Qed.

(* source minus-cut *)
Theorem taken_away_and_put_back : forall n m : nat, m <= n -> n - m + m = n.
Proof. intros n m h. lia. Qed.

(* heldout minus-not-back *)
Theorem not_always_put_back : exists n m : nat, n - m + m <> n.
Proof. exists 0, 1. simpl. discriminate. Qed.

(* source squares *)
Theorem square_of_a_sum : forall a b : nat, (a + b) * (a + b) = a * a + 2 * a * b + b * b.
Proof. intros a b. ring. Qed.

(* heldout squares-order *)
Theorem squares_keep_order : forall a b : nat, a < b -> a * a < b * b.
Proof. intros a b h. nia. Qed.

(* train product-zero *)
Theorem a_product_is_nothing : forall a b : nat, a * b = 0 -> a = 0 \/ b = 0.
Proof. intros a b h. destruct a as [| a]; [left; reflexivity | right; nia]. Qed.

(* source halves *)
Theorem even_or_odd : forall n : nat, exists k : nat, n = 2 * k \/ n = 2 * k + 1.
Proof.
  induction n as [| n [k [h | h]]].
  - exists 0. left. reflexivity.
  - exists k. right. lia.
  - exists (S k). left. lia.
Qed.

(* heldout thirds *)
Theorem one_of_three : forall n : nat, exists k : nat, n = 3 * k \/ n = 3 * k + 1 \/ n = 3 * k + 2.
Proof.
  induction n as [| n [k [h | [h | h]]]].
  - exists 0. left. reflexivity.
  - exists k. right. left. lia.
  - exists k. right. right. lia.
  - exists (S k). left. lia.
Qed.

(* heldout coins *)
Theorem threes_and_fives : forall n : nat, exists a b : nat, n + 8 = 3 * a + 5 * b.
Proof.
  induction n as [| n [a [b h]]].
  - exists 1, 1. reflexivity.
  - destruct b as [| b]; [destruct a as [| [| [| a]]]; try lia; exists a, 2; lia |].
    exists (a + 2), b. lia.
Qed.

(* ---- Functions on numbers ---- *)

Fixpoint double (n : nat) : nat := match n with O => O | S m => S (S (double m)) end.

(* source double *)
Theorem double_is_a_sum : forall n : nat, double n = n + n.
Proof. induction n as [| n IH]; simpl; [reflexivity | rewrite IH; lia]. Qed.

(* source double *)
Theorem double_of_a_sum : forall n m : nat, double (n + m) = double n + double m.
Proof. intros n m. induction n as [| n IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

Fixpoint sum_to (n : nat) : nat := match n with O => O | S m => S m + sum_to m end.

(* heldout sum-to *)
Theorem twice_the_sum : forall n : nat, 2 * sum_to n = n * (n + 1).
Proof. induction n as [| n IH]; [reflexivity |]. change (sum_to (S n)) with (S n + sum_to n). lia. Qed.

Fixpoint odd_sum (n : nat) : nat := match n with O => O | S m => 2 * m + 1 + odd_sum m end.

(* source odd-sum *)
Theorem odd_numbers_make_squares : forall n : nat, odd_sum n = n * n.
Proof. induction n as [| n IH]; simpl; [reflexivity | rewrite IH; nia]. Qed.

Fixpoint power (b n : nat) : nat := match n with O => 1 | S m => b * power b m end.

(* train power-sum *)
Theorem exponents_add : forall b n m : nat, power b (n + m) = power b n * power b m.
Proof. intros b n m. induction n as [| n IH]; simpl; [lia | rewrite IH; ring]. Qed.

(* heldout power-large *)
Theorem powers_of_two_are_large : forall n : nat, n < power 2 n.
Proof. induction n as [| n IH]; simpl; lia. Qed.

Fixpoint add_onto (n m : nat) : nat := match n with O => m | S k => add_onto k (S m) end.

(* source add-onto *)
Theorem added_onto : forall n m : nat, add_onto n m = n + m.
Proof. induction n as [| n IH]; intros m; simpl; [reflexivity | rewrite IH; lia]. Qed.

Fixpoint count_up (n acc : nat) : nat := match n with O => acc | S k => count_up k (n + acc) end.

(* heldout count-up *)
Theorem counted_up : forall n acc : nat, count_up n acc = count_up n 0 + acc.
Proof.
  assert (h : forall n a b, count_up n (a + b) = count_up n a + b).
  { induction n as [| n IH]; intros a b; [reflexivity |]. cbn [count_up]. rewrite <- IH. f_equal. lia. }
  intros n acc. rewrite <- (h n 0 acc). reflexivity.
Qed.

Definition larger (a b : nat) : nat := if a <? b then b else a.

(* source larger *)
Theorem larger_is_no_less : forall a b : nat, a <= larger a b.
Proof. intros a b. unfold larger. destruct (Nat.ltb_spec a b); lia. Qed.

Definition smaller (a b : nat) : nat := if a <? b then a else b.

(* heldout smaller *)
Theorem smaller_either_way : forall a b : nat, smaller a b = smaller b a.
Proof. intros a b. unfold smaller. destruct (Nat.ltb_spec a b), (Nat.ltb_spec b a); lia. Qed.

Require Import List.
Import ListNotations.

(* ---- Lists ---- *)

(* source app-nil *)
Theorem nothing_put_behind : forall (A : Type) (l : list A), l ++ [] = l.
Proof. intros A l. induction l as [| x l IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* heldout app-assoc *)
Theorem three_lists : forall (A : Type) (a b c : list A), (a ++ b) ++ c = a ++ (b ++ c).
Proof. intros A a b c. induction a as [| x a IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* source length-app *)
Theorem lengths_add : forall (A : Type) (a b : list A), length (a ++ b) = length a + length b.
Proof. intros A a b. induction a as [| x a IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* train map-length *)
Theorem as_many_as_before : forall (A B : Type) (f : A -> B) (l : list A), length (map f l) = length l.
Proof. intros A B f l. induction l as [| x l IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* heldout map-map *)
Theorem one_pass_for_two : forall (A B C : Type) (f : A -> B) (g : B -> C) (l : list A), map g (map f l) = map (fun x => g (f x)) l.
Proof. intros A B C f g l. induction l as [| x l IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.

(* source rev-app *)
Theorem turned_round_in_parts : forall (A : Type) (a b : list A), rev (a ++ b) = rev b ++ rev a.
Proof.
  intros A a b. induction a as [| x a IH]; simpl.
  - rewrite app_nil_r. reflexivity.
  - rewrite IH, app_assoc. reflexivity.
Qed.

(* heldout rev-rev *)
Theorem turned_round_twice : forall (A : Type) (l : list A), rev (rev l) = l.
Proof. intros A l. induction l as [| x l IH]; simpl; [reflexivity | rewrite rev_app_distr, IH; reflexivity]. Qed.

Fixpoint turn (A : Type) (l acc : list A) : list A := match l with [] => acc | x :: r => turn A r (x :: acc) end.

(* source turn *)
Theorem turned_onto : forall (A : Type) (l acc : list A), turn A l acc = rev l ++ acc.
Proof. intros A l. induction l as [| x l IH]; intros acc; simpl; [reflexivity | rewrite IH, <- app_assoc; reflexivity]. Qed.

Fixpoint total (l : list nat) : nat := match l with [] => 0 | x :: r => x + total r end.
Fixpoint total_onto (l : list nat) (acc : nat) : nat := match l with [] => acc | x :: r => total_onto r (x + acc) end.

(* heldout total-onto *)
Theorem totals_agree : forall (l : list nat) (acc : nat), total_onto l acc = total l + acc.
Proof. induction l as [| x l IH]; intros acc; simpl; [reflexivity | rewrite IH; lia]. Qed.

(* train total-app *)
Theorem total_in_parts : forall a b : list nat, total (a ++ b) = total a + total b.
Proof. intros a b. induction a as [| x a IH]; simpl; [reflexivity | rewrite IH; lia]. Qed.

(* heldout in-app *)
Theorem in_one_of_the_two : forall (A : Type) (x : A) (a b : list A), In x (a ++ b) <-> In x a \/ In x b.
Proof. intros A x a b. induction a as [| y a IH]; simpl; [tauto | rewrite IH; tauto]. Qed.

(* source in-map *)
Theorem found_after_the_map : forall (A B : Type) (f : A -> B) (x : A) (l : list A), In x l -> In (f x) (map f l).
Proof. intros A B f x l. induction l as [| y l IH]; simpl; [tauto | intros [h | h]; [left; rewrite h; reflexivity | right; auto]]. Qed.

(* heldout filter-length *)
Theorem no_more_than_before : forall (A : Type) (keep : A -> bool) (l : list A), length (filter keep l) <= length l.
Proof. intros A keep l. induction l as [| x l IH]; simpl; [lia | destruct (keep x); simpl; lia]. Qed.

(* ---- Trees ---- *)

Inductive tree : Type := Leaf | Node (left : tree) (value : nat) (right : tree).
Fixpoint mirror (t : tree) : tree := match t with Leaf => Leaf | Node l v r => Node (mirror r) v (mirror l) end.
Fixpoint size (t : tree) : nat := match t with Leaf => 0 | Node l _ r => S (size l + size r) end.
Fixpoint walk (t : tree) : list nat := match t with Leaf => [] | Node l v r => walk l ++ v :: walk r end.

(* source mirror-mirror *)
Theorem mirrored_twice : forall t : tree, mirror (mirror t) = t.
Proof. induction t as [| l IHl v r IHr]; simpl; [reflexivity | rewrite IHl, IHr; reflexivity]. Qed.

(* heldout mirror-size *)
Theorem a_mirror_keeps_size : forall t : tree, size (mirror t) = size t.
Proof. induction t as [| l IHl v r IHr]; simpl; [reflexivity | rewrite IHl, IHr; lia]. Qed.

(* source walk-length *)
Theorem a_walk_sees_all : forall t : tree, length (walk t) = size t.
Proof. induction t as [| l IHl v r IHr]; simpl; [reflexivity | rewrite app_length; simpl; rewrite IHl, IHr; lia]. Qed.

(* heldout walk-mirror *)
Theorem a_walk_in_the_mirror : forall t : tree, walk (mirror t) = rev (walk t).
Proof.
  induction t as [| l IHl v r IHr]; simpl; [reflexivity |].
  rewrite IHl, IHr, rev_app_distr. simpl. rewrite <- app_assoc. reflexivity.
Qed.

Require Import ZArith.
Open Scope Z_scope.

(* ---- Integers ---- *)

(* source z-linear *)
Theorem two_trains : forall slow fast : Z, slow + fast = 170 -> fast = slow + 30 -> slow = 70.
Proof. intros slow fast h k. lia. Qed.

(* heldout z-ages *)
Theorem three_ages : forall a b c : Z, a + b + c = 60 -> a = 2 * b -> c = b + 12 -> b = 12.
Proof. intros a b c h k l. lia. Qed.

(* source z-square *)
Theorem squares_are_not_negative : forall x : Z, 0 <= x * x.
Proof. intros x. nia. Qed.

(* heldout z-mean *)
Theorem twice_the_product : forall x y : Z, 2 * (x * y) <= x * x + y * y.
Proof. intros x y. pose proof (Z.square_nonneg (x - y)). nia. Qed.

(* source z-difference *)
Theorem difference_of_squares : forall x y : Z, x * x - y * y = (x - y) * (x + y).
Proof. intros x y. ring. Qed.

(* train z-mod *)
Theorem last_digit : (7 * 13 + 4) mod 10 = 5.
Proof. reflexivity. Qed.

(* source z-divides *)
Theorem dividing_a_sum : forall d a b : Z, (d | a) -> (d | b) -> (d | a + b).
Proof. intros d a b [k h] [m j]. exists (k + m). rewrite h, j. ring. Qed.

(* heldout z-divides-product *)
Theorem dividing_a_product : forall d a b : Z, (d | a) -> (d | a * b).
Proof. intros d a b [k h]. exists (k * b). rewrite h. ring. Qed.

(* heldout z-square-zero *)
Theorem squares_that_vanish : forall x y : Z, x * x + y * y = 0 -> x = 0 /\ y = 0.
Proof. intros x y h. assert (0 <= x * x) by nia. assert (0 <= y * y) by nia. split; nia. Qed.

(* heldout z-mod-square *)
Theorem squares_modulo_four : forall x : Z, (x * x) mod 4 = 0 \/ (x * x) mod 4 = 1.
Proof.
  intros x. assert (h : x = 2 * (x / 2) + x mod 2) by (apply Z.div_mod; lia).
  assert (k : 0 <= x mod 2 < 2) by (apply Z.mod_pos_bound; lia).
  assert (c : x mod 2 = 0 \/ x mod 2 = 1) by lia. remember (x / 2) as q. destruct c as [c | c]; rewrite c in h; rewrite h.
  - left. replace ((2 * q + 0) * (2 * q + 0)) with (q * q * 4) by ring. apply Z.mod_mul. lia.
  - right. replace ((2 * q + 1) * (2 * q + 1)) with (1 + (q * q + q) * 4) by ring. rewrite Z.mod_add by lia. reflexivity.
Qed.
